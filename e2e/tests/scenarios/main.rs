//! One behaviour of the gateway a file, named as a sentence. One program, since linking one a file takes
//! longer than running them all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod a_backup_server_is_used_when_no_other_is_up;
mod a_big_blob_passes_both_ways;
mod a_frozen_server_loses_its_sessions;
mod a_killed_server_ends_its_sessions_with_an_error;
mod a_refusing_server_is_noticed_before_the_next_check;
mod a_reload_adds_and_removes_servers;
mod a_shutdown_lets_transactions_finish;
mod a_statement_is_killed_from_another_session;
mod a_unix_socket_of_a_server_proves_no_password;
mod a_wrong_configuration_is_explained;
mod another_server_is_tried_before_a_login;
mod binary_logs_are_read_through_the_gateway;
mod clients_may_be_required_to_use_tls;
mod clients_may_compress;
mod connections_have_the_congestion_control_that_is_chosen;
mod full_servers_let_sessions_wait;
mod ipv6_clients_are_served;
mod load_data_local_asks_the_client_for_its_file;
mod metrics_tell_what_happened;
mod no_server_is_a_proper_error;
mod passwords_may_be_for_pam;
mod procedures_return_several_results;
mod sandboxes_stay_until_they_are_told_to_go;
mod servers_that_mode_split_cannot_use_are_named;
mod sessions_can_be_looked_at;
mod sessions_over_the_limit_are_refused;
mod sessions_spread_over_servers;
mod statements_and_transactions_work_as_before;
mod the_proxy_header_carries_the_client_s_address;
mod the_tcp_mode_forwards_bytes;
mod the_way_to_servers_may_be_encrypted;
mod unix_socket_clients_are_served;
