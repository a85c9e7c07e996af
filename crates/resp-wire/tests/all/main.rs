//! The tests of this crate from outside, in one program: linked once, run side by side.

mod fuzz_corpus;
