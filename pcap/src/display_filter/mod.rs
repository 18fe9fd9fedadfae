//! Display filters in the language and with the field names of Wireshark.
//!
//! ```text
//!  infiniband.bth.destqp == 0x11 && !(infiniband.aeth.syndrome.opcode in {1, 3})
//! ```
//!
//! | | |
//! |---|---|
//! | `field` | the field is present |
//! | `field & mask` | one of the bits is set |
//! | `field == value`, `!=`, `>`, `<`, `>=`, `<=` | as in Wireshark 4.0: `!=` holds if all values of the field differ, `~=` if one does |
//! | `field in {1, 4..7}` | the field has one of these values |
//! | `!`, `&&`, `\|\|`, `( )` | `&&` binds tighter than `\|\|` |
//!
//! Words stand for the operators: `not`, `and`, `or`, `eq`, `ne`, `gt`, `lt`, `ge`, `le`. The value on the right may be
//! another field. A field that a packet does not have compares as false. [`Field::ALL`] lists the fields.
//!
//! | file | |
//! |---|---|
//! | `field` | [`Field`]: name, type, and values of a packet |
//! | `packet_fields`, `cm_fields`, `fields` | the fields of headers, those of the connection manager, and all of them |
//! | `lexer`, `parser` | text to expression |
//! | `filter` | [`DisplayFilter`]: applies an expression to packets |

mod cm_fields;
mod field;
mod fields;
mod filter;
mod lexer;
mod packet_fields;
mod parser;

pub use field::{Field, Subject, Value};
pub use filter::DisplayFilter;
pub use lexer::FilterError;
