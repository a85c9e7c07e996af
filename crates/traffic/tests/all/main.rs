//! The crate as others use it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod a_file_is_read_up_to_its_last_whole_frame;
mod a_sealed_folder_is_read_with_its_key_alone;
mod fuzz_corpus;
