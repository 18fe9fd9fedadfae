//! Counters: names, values, help texts, and names in other drivers.
//!
//! Each struct of counters is defined by one table with `counters!`, which generates fields, documentation, names,
//! help texts and sums. Counters are never reset; programs compute differences.

mod prometheus;

pub use prometheus::{Family, Labels, Sample};

/// A counter and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counter {
    /// Name, for example `duplicate_requests`.
    pub name: &'static str,
    /// Meaning of the counter, in one sentence.
    pub help: &'static str,
    /// Driver names and their names of the closest counter.
    pub also: &'static [(&'static str, &'static str)],
    /// Value.
    pub value: u64,
}

/// Generates a struct of counters from a table of rows `name: "help", driver "its name", …;`. The prefix `named` is
/// part of the names, but not of the fields. A last field with counters by a key may follow.
macro_rules! counters {
    (
        named $prefix:literal;
        $(#[$meta:meta])*
        $vis:vis struct $counters:ident {
            $($name:ident: $help:literal $(, $driver:ident $alias:literal)*;)*
            $(.. $rest:ident: $rest_type:ty)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        $vis struct $counters {
            $(#[doc = $help] $vis $name: u64,)*
            $($rest: $rest_type,)?
        }

        impl $counters {
            /// Every counter, in the order of the table.
            $vis fn iter(&self) -> impl Iterator<Item = $crate::counter::Counter> + use<> {
                let named = [$($crate::counter::Counter {
                    name: concat!($prefix, stringify!($name)),
                    help: $help,
                    also: &[$((stringify!($driver), $alias)),*],
                    value: self.$name,
                }),*];
                named.into_iter()$(.chain(self.$rest.iter()))?
            }
        }

        impl std::ops::AddAssign<&Self> for $counters {
            fn add_assign(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                $(self.$rest += &other.$rest;)?
            }
        }
    };
}

pub(crate) use counters;

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        named "fruit_";
        /// Counters for this test.
        struct Few {
            apples: "Apples eaten.", rxe "apples_eaten", mlx5 "np_apple";
            pears: "Pears.";
        }
    }

    #[test]
    fn table_generates_names_help_and_sums() {
        let mut few = Few { apples: 1, pears: 2 };
        few += &Few { apples: 10, pears: 0 };
        let listed: Vec<_> = few.iter().collect();
        let also: &[_] = &[("rxe", "apples_eaten"), ("mlx5", "np_apple")];
        let expected = [
            Counter { name: "fruit_apples", help: "Apples eaten.", also, value: 11 },
            Counter { name: "fruit_pears", help: "Pears.", also: &[], value: 2 },
        ];
        assert_eq!(listed, expected);
    }
}
