//! Mode `split` on real servers: one behaviour a file, named as a sentence; [`cluster`] and [`accounts`] are
//! what they share.
//!
//! `FOREBAY_SPLIT_OPERATIONS=1000000` makes the tests of fresh reads as long as one wishes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod accounts;
#[path = "../differential/authentication.rs"]
#[allow(dead_code, unreachable_pub, reason = "written for another program, too")]
mod authentication;
mod cluster;
#[path = "../faults/link.rs"]
#[allow(dead_code, unreachable_pub, reason = "written for another program, too")]
mod link;
#[path = "../differential/client.rs"]
#[allow(dead_code, unreachable_pub, reason = "written for another program, too")]
mod raw;
mod turns;

mod a_client_that_stalls_holds_nobody_up;
mod a_fault_of_one_session_is_no_others;
mod a_login_needs_no_certain_server;
mod a_new_primary_is_followed;
mod a_primary_that_a_reload_takes_away_is_told;
mod a_primary_that_takes_no_writes_is_named;
mod a_question_that_is_no_sql_binds_nobody;
mod a_replica_that_refuses_an_account_is_left_alone;
mod a_rule_for_all_reads_binds_nobody_to_a_replica;
mod a_rule_may_say_that_calls_leave_nothing;
mod a_server_that_says_nothing_holds_nobody_up;
mod a_session_can_leave_a_schema_that_is_gone;
mod a_session_says_how_fresh_its_reads_are;
mod a_write_is_done_once_or_not_at_all;
mod accounts_may_be_known_by_their_hash;
mod accounts_may_be_left_to_the_servers;
mod accounts_may_be_the_servers_own;
mod an_explanation_comes_with_the_warnings;
mod an_old_primary_is_left;
mod an_old_primary_that_is_back_is_told;
mod answers_stay_in_step;
mod commands_need_the_rights_of_their_session;
mod compressed_connections_may_be_shared;
mod cursors_and_long_data_stay_with_their_session;
mod delays;
mod errors_are_kept_for_silent_sessions;
mod every_door_is_closed_as_the_server_s_own_is;
mod figures_are_those_of_the_sessions_last_statement;
mod functions_may_be_trusted;
mod ledger;
mod logins_are_told_why_no_server_takes_them;
mod many_clients_share_few_connections;
mod members_may_be_ignored;
mod new_logins_have_the_rights_of_now;
mod no_read_is_older_than_promised;
mod nothing_is_waited_for_in_vain;
mod nothing_unasked_reaches_another_session;
mod procedures_keep_their_cursors_to_themselves;
mod quick_reads_go_together;
mod reads_are_as_fresh_as_they_have_to_be;
mod reads_go_by_what_rules_and_options_say;
mod reads_spread_over_the_replicas;
mod replicas_are_chosen_as_options_say;
mod rules_decide_what_happens_to_statements;
mod servers_are_asked_before_the_start;
mod servers_get_no_file_unasked;
mod servers_may_be_named_by_dns;
mod servers_may_have_no_room_for_a_moment;
mod servers_show_of_sessions_what_is_believed;
mod sessions_are_killed_by_their_number;
mod sessions_begin_without_a_free_primary;
mod sessions_can_be_looked_at;
mod sessions_of_others_are_never_mixed_up;
mod several_servers_may_take_writes;
mod statements_are_prepared_again_where_they_are_not_known;
mod statements_are_prepared_together_with_their_execution;
mod statements_are_read_in_their_charset;
mod statements_may_be_long;
mod statements_of_every_kind_are_as_on_one_server;
mod the_pool_finds_its_size;
mod transactions_may_read_on_a_replica_first;
mod transactions_stay_on_one_server;
mod two_primaries_get_no_writes;
mod two_sessions_take_turns_on_one_connection;
mod users_log_in_with_the_gateway;
mod what_a_session_holds_is_kept_for_it;
mod what_a_session_sets_goes_with_its_reads;
mod what_a_session_sets_is_its_own;
mod what_a_statement_leaves_is_told_to_its_session;
mod who_answered_a_statement_is_told;
mod workers_hand_their_connections_over_alive;
mod writes_behind_an_error_are_seen;
mod writes_that_were_lost_are_waited_for_once;
