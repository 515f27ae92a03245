//! Tests whose executable, started again as their zygote, comes out in the test itself.

/// Each test, where the process is its zygote, is what stands before the first one instead: it serves runs.
macro_rules! in_zygotes {
    ($serve:expr; $($(#[$meta:meta])* fn $name:ident() $body:block)+) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            if photofinish_sim::zygote::inside() {
                $serve
            }
            $body
        }
    )+};
}
