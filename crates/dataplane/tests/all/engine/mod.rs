//! What happens to commands in modes `session` and `split`, on servers that say what a statement asks them
//! to: see [`stage`].

mod a_lost_statement_is_done_once_or_not_at_all;
mod a_lost_transaction_is_executed_again;
mod a_server_catches_up_with_what_memory_has_answered;
mod a_session_with_lookups_keeps_its_connection;
mod every_command_ends_once;
mod many_clients_share_few_connections;
mod memory;
mod rules_decide_what_happens_to_statements;
mod sessions_are_killed_by_their_number;
mod sessions_go_to_another_process;
mod stage;
mod statements_go_where_they_belong;
mod what_a_session_holds_is_kept_for_it;
