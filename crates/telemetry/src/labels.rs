//! Enums whose values are words of logs and metrics.

/// Declares an enum with a word for each of its values: `ALL` has them in their order, `label` is the word.
#[macro_export]
macro_rules! labels {
    ($(#[$meta:meta])* $visible:vis enum $name:ident { $($(#[$about:meta])* $value:ident = $label:literal,)+ }) => {
        $(#[$meta])*
        $visible enum $name { $($(#[$about])* $value,)+ }

        impl $name {
            /// All of them, in the order of their values.
            $visible const ALL: [Self; [$($label),+].len()] = [$(Self::$value),+];

            /// The word in logs and metrics.
            #[must_use]
            $visible const fn label(self) -> &'static str {
                match self { $(Self::$value => $label,)+ }
            }
        }
    };
}
