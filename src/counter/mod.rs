//! Counters: what each is called, what it counts, and what others call it.
//!
//! Whatever counts has one table, made with `counters!`: fields, documentation, names, help and sums
//! follow from it. A counter is never reset; who wants to know what happened in between takes the
//! difference.

mod prometheus;

pub use prometheus::{Family, Labels, Sample};

/// A counter and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counter {
    /// Its name: `duplicate_requests`.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub help: &'static str,
    /// What drivers call the counter that comes closest, by the driver's name.
    pub also: &'static [(&'static str, &'static str)],
    /// How many.
    pub value: u64,
}

/// Makes a struct of counters from a table of rows `name: "help", driver "its name", …;`. Names have
/// in front what is `named`, and fields do not. A last field may follow that counts by something.
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
        /// Of a test.
        struct Few {
            apples: "Apples eaten.", rxe "apples_eaten", mlx5 "np_apple";
            pears: "Pears.";
        }
    }

    #[test]
    fn names_help_and_sums_follow_from_the_table() {
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
