//! Reading on real servers: how fresh reads are, and rows that the primary is asked for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod a_group_answers_for_all_its_members;
mod an_address_leads_to_another_machine;
mod collations_compare_ascii_as_is_believed;
mod keys_that_only_the_server_can_compare;
mod rows_that_are_not_in_memory;
mod served;
mod session_reads_see_the_sessions_writes;
mod strong_reads_fail_with_a_reason;
mod strong_reads_see_what_was_acknowledged;
mod tables_that_cannot_be_mapped_say_why;
