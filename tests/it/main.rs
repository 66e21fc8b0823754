//! Client, host and driver together, and where each row of the contract is tested.
//!
//! A name without a crate is a test of this binary; `host/runs::x` is the test `x` in `crates/host/tests/it/runs.rs`.
//! `rows` checks that every named test is there. Rows of usage records and asynchronous sinks are not of this version.
//!
//! | contract 3.4 | tests |
//! | --- | --- |
//! | approve | `loopback::each_outcome_from_end_to_end` `driver/sequences::approve` `host/runs::an_approved_call_runs_once_with_the_reviewed_arguments` |
//! | approve, application tool | `application::a_tool_box_from_end_to_end` `driver/application::approve_then_execute` `host/executions::who_asks_for_a_review` |
//! | deny | `loopback::each_outcome_from_end_to_end` `driver/sequences::deny_and_cancel_by_decision` |
//! | cancel | `loopback::each_outcome_from_end_to_end` `driver/sequences::deny_and_cancel_by_decision` |
//! | expire | `loopback::each_outcome_from_end_to_end` `driver/sequences::expire` |
//! | idle expiry while waiting | `contract::under_continue_the_idle_clock_runs` `driver/sequences::idle_expiry_while_waiting` |
//! | embedded abort while waiting | `driver/sequences::embedded_abort_while_waiting` |
//! | client disconnect | `loopback::hanging_up_and_closing_revoke` `host/streams::hanging_up_on_a_waiting_review_revokes_it_at_once` |
//! | host shutdown | `crowd::closing_tells_two_hundred_who_wait` `host/shutdown::closing_cancels_waiting_runs_and_lets_them_say_so` |
//! | approve callback refuses | `contract::without_a_way_to_approve` `driver/sequences::callback_refuses` |
//! | gated tool, no approvals option, no callback | `contract::without_a_way_to_approve` `host/runs::a_client_that_does_not_ask_for_reviews_sees_none` |
//! | capacity full | `contract::capacity_is_freed_with_the_run` `driver/sequences::capacity_full` |
//! | audit fails on requested | `contract::a_failing_sink_ends_the_run` `driver/sequences::audit_fails` |
//! | audit fails on resolved | `contract::a_failing_sink_ends_the_run` `driver/sequences::audit_fails` |
//! | arguments not preservable, or too large | `contract::a_call_that_cannot_be_carried_is_not_reviewed` `driver/gate::arguments` `driver/sequences::too_large_to_review` |
//! | two gated calls | `contract::two_calls_are_two_reviews` `driver/sequences::two_gated_calls_first_approved_second_denied` |
//! | approved, then the idle clock runs out | `contract::approved_but_not_read_in_time` `driver/sequences::approved_then_the_idle_clock_runs_out_before_the_loop_resumes` |
//! | denied, and the run is aborted | `contract::denied_and_then_aborted` `driver/sequences::denied_and_aborted_before_the_loop_resumes` |
//!
//! | contract 4.4 | tests |
//! | --- | --- |
//! | 1 | `host/decisions::refused_decisions_leave_the_review_open` `driver/behaviours::invalid_decisions_are_audited_and_leave_the_review` `approval-core/registry::row_1_is_before_all_others` |
//! | 2 | `host/decisions::anothers_approval_and_an_unknown_one_are_the_same_answer` `host/decisions::refused_decisions_leave_the_review_open` |
//! | 3 | `contract::a_decision_in_the_moment_of_the_abort` `approval-core/registry::the_first_row_that_holds_answers` |
//! | 4 | `contract::late_decisions` `host/decisions::a_late_decision_is_refused_even_if_only_the_clock_moved` |
//! | 5 | `host/decisions::refused_decisions_leave_the_review_open` |
//! | 6 | `loopback::altered_decisions_and_one_effect` `encodings::another_value_is_refused` `host/decisions::refused_decisions_leave_the_review_open` |
//! | 7 | `loopback::each_outcome_from_end_to_end` `encodings::every_spelling_of_the_same_value_is_accepted` |
//! | 7b | `host/decisions::a_failing_sink_authorizes_nothing` `slow_sink::a_decision_waits_for_its_record` |
//! | every pair of rows | `approval-core/registry::the_first_row_that_holds_answers` |
//! | rows 3 and 4 with a failing sink | `contract::a_decision_in_the_moment_of_the_abort` `contract::late_decisions` |
//! | a refusal that cannot be recorded | `contract::a_refusal_that_cannot_be_recorded` |
//! | single use | `crowd::two_thousand_decisions_make_one_effect_a_run` `host/decisions::of_many_decisions_at_once_one_wins` |
//!
//! | contract 4.11 | tests |
//! | --- | --- |
//! | 1 | `contract::a_receipt_is_not_an_effect` `host/streams::an_approved_call_starts_only_after_its_event_was_written` |
//! | 2 | `loopback::altered_decisions_and_one_effect` |
//! | 3 | `loopback::altered_decisions_and_one_effect` |
//! | 4 | `loopback::altered_decisions_and_one_effect` |
//! | 5 | `loopback::altered_decisions_and_one_effect` |
//! | 6 | `loopback::each_outcome_from_end_to_end` `driver/sequences::deny_and_cancel_by_decision` |
//! | 7 | `driver/behaviours::thirty_days_of_thought_cost_nothing` `host/streams::a_long_wait_costs_no_idle_time` |
//! | 8 | `contract::under_continue_the_idle_clock_runs` |
//! | 9 | `contract::approved_but_not_read_in_time` |
//! | 10 | `contract::late_decisions` `driver/behaviours::either_clock_expires_a_review` |
//! | 11 | `contract::capacity_is_freed_with_the_run` `host/runs::review_capacity_is_free_again_after_a_hang_up` |
//! | 12 | `host/runs::a_host_without_reviews_refuses_the_option_and_knows_no_approval` `host/runs::a_host_can_refuse_to_pause_the_idle_clock` |
//! | 13 | `contract::without_a_way_to_approve` `host/decisions::a_full_host_takes_decisions` |
//! | 14 | `driver/behaviours::what_is_shown_is_what_runs` |
//! | 15 | `contract::a_call_that_cannot_be_carried_is_not_reviewed` `encodings::another_value_is_refused` |
//! | 16 | `loopback::hanging_up_and_closing_revoke` `host/streams::hanging_up_a_socket_revokes_the_review_before_any_heartbeat` |
//! | 17 | `loopback::hanging_up_and_closing_revoke` `driver/sequences::embedded_abort_while_waiting` |
//! | 18 | `contract::a_failing_sink_ends_the_run` `host/decisions::a_failing_sink_authorizes_nothing` |
//! | 19 | `contract::a_failing_sink_ends_the_run`, and a `compile_fail` doctest of `AuditSink` |
//! | 20 | `keyed::a_repeated_request_is_told_and_not_run` `driver/operations/runs::a_replay_tells_the_run_and_neither_prompts_nor_executes` `host/operations::a_reviewed_run_is_told_without_its_questions` |
//! | 21 | `keyed::an_interrupted_review_is_uncertain_for_ever` `driver/operations/runs::an_interrupted_review_is_uncertain` `cli/operations::killed_while_a_person_is_asked` |
//! | 22 | `host/decisions::a_full_host_takes_decisions` `host/catalog::features_are_those_that_this_host_has` |
//! | 23 | `loopback::each_outcome_from_end_to_end` `encodings::foreign::node_reviews_a_call` `encodings::foreign::python_reviews_a_call` |
//!
//! | contract 1.3, 1.7, 6, of the host | tests |
//! | --- | --- |
//! | 1.3, HSTS with TLS | `host/tls::every_answer_says_that_tls_is_the_only_way` |
//! | 1.7, shapes | `host/discovery::what_vendors_say_is_shown_in_the_contracts_shapes` `host/catalog::providers_are_those_that_the_token_names` `providers/discover::lists_of_every_vendor` `providers/discover::refusals_of_every_vendor` |
//! | 1.7, 30 s, 5 s and 1 s | `host/discovery::answers_are_remembered_and_refreshed` `host/discovery::a_hundred_who_ask_at_once_are_one_question` |
//! | 1.7, only what the token names | `host/discovery::only_granted_vendors_are_asked` |
//! | 2 and 6.1, `limits` | `host/limits::the_smaller_bound_counts` |
//! | 6.1, every field | `host/config::every_field_is_accepted_within_its_rule` `host/config::broken::every_broken_rule_is_named_with_its_field` `host/config::special_codes_are_used_where_the_contract_has_them` |
//! | 6.1, `tls` | `host/tls::pairs_that_cannot_be_used` `host/tls::versions_from_1_2_on` `host/config::tls_opens_other_addresses` `cli/exposed::a_pair_that_cannot_be_used_is_found_before_anything_is_served` |
//! | 6.3, `TLS_REQUIRED`, the URL | `host/tls::a_socket_with_tls` `host/shutdown::names_of_loopback_are_served_and_others_need_tls` |
//! | 6.4, a queued stream has begun | `host/queue::a_queued_stream_has_begun_and_goes_on_with_a_slot` |
//! | 6.4, `QUEUE_FULL`, and 2.1, row 17 | `host/queue::a_full_queue_says_so` `host/queue::a_queued_buffered_run_that_needs_a_stream_is_told_at_once` |
//! | 6.4, round-robin | `host/queue::slots_go_round_over_the_subjects` |
//! | 6.4 and 8, no idle time in the queue | `host/queue::waiting_for_a_slot_costs_no_idle_time` |
//! | 6.4, decisions need no slot | `host/queue::a_full_queue_is_decided_and_an_override_counts` `host/decisions::a_full_host_takes_decisions` |
//! | leaving the queue | `host/queue::hanging_up_leaves_the_queue_at_once` `host/queue::closing_empties_the_queue` |
//! | 10.5, a wrong name, a wrong authority | `tls::a_wrong_name_and_a_wrong_authority` `cli/exposed::a_run_over_tls` |
//! | 1.8, 6.4, 8: stopped and slow readers, a byte a second, all at once: others go on, limits answer | `host/hostile::others_go_on_and_the_limits_answer` `host/streams::a_client_that_never_reads_holds_its_run_back` `host/bodies::a_peer_that_takes_nothing_is_dropped` |
//! | 4.8: a sink that fails at any call, and recovers | `host/hostile::a_sink_that_fails_at_any_call` `host/hostile::a_sink_that_fails_while_nobody_decides` `driver/sequences::audit_fails` `driver/sequences::audit_fails_on_execution` |
//! | 1.2, `/metrics` is absent where it is off, or not for this token (decision 0017) | `host/metrics::to_whoever_may_not_read_it_it_is_an_unknown_path` `host/metrics::who_may_read_it` `host/metrics::the_configuration_switches_it_on` |
//! | metrics, spans, redaction (issue of the design, "observability") | `host/metrics::it_follows_what_happens` `driver/observed::spans_say_which_and_never_what` `driver/observed::figures_follow_a_run` `cli/secrets::no_secret_is_in_a_log_a_metric_or_an_answer` |
//! | connections that send nothing | `host/connections::five_thousand_that_send_nothing` `host/connections::a_newcomer_takes_the_place_of_the_longest_idle` `host/tls::handshakes_are_bounded_in_number` `cli/exposed::more_connections_than_files` |
//!
//! | contract 7.2, 7.5; design 4 | tests |
//! | --- | --- |
//! | final text is JSON and valid, `output` is its value | `additions::structured_output` `driver/output::the_answer_is_kept_exactly` `host/additions::structured_output` |
//! | else `INVALID_OUTPUT` | `additions::structured_output` `driver/output::an_answer_that_does_not_fit_fails_the_run` `driver/output::a_cut_answer_is_no_answer` |
//! | the host's own instruction after an empty line | `driver/output::the_host_s_own_instruction_follows_the_request_s` |
//! | dialects, references, keywords, patterns: `INVALID_SCHEMA` (2.1, row 14) | unit tests of `driver/src/schema/request`, `driver/requests::the_first_failing_check_answers` `host/additions::structured_output` |
//! | what schemas and values may cost (law 9) | unit tests of `driver/src/schema/request`, `driver/output::an_answer_that_would_take_too_long_to_check_is_refused` |
//! | `approval-digest` | `additions::the_digest_is_checked` `driver/additions::digest_for_whoever_asks` `host/additions::the_digest_stands_in_the_question` `protocol/conformance::digests` |
//! | `denial-feedback` | `additions::a_denied_run_goes_on` `driver/additions::a_denied_call_is_told_and_the_run_goes_on` `host/additions::a_denial_with_a_reason` |
//! | expiry is never told as a refusal | `driver/additions::a_denial_without_reason_and_an_expiry` `approval-core/registry_states::a_late_decision_leaves_no_reason` |
//! | features told and refused one by one | `driver/additions::each_is_told_and_refused_by_itself` `host/additions::features_are_told_where_they_are_on` `host/runs::additions_that_are_switched_off_are_refused` |
//! | a reason only where it is taken, 2,000 characters | `driver/additions::reasons_in_bodies` `host/additions::a_reason_where_none_is_taken` `approval-core/registry_states::a_reason_is_recorded_where_reasons_are_taken` |
//!
//! | contract 7.6 | tests |
//! | --- | --- |
//! | definition, strict | `protocol/request::application_tools` `host/executions::the_order_of_checks_on_a_request` |
//! | order of checks (2.1, 12, 16, 18) | `driver/application::the_order_of_checks_on_definitions` `driver/application::grants` `driver/application::a_buffered_run_cannot_ask` `host/executions::the_order_of_checks_on_a_request` |
//! | 128,000 bytes of a definition | `driver/application::the_bound_on_a_definition_at_its_edge` `protocol/request::definitions_are_measured_as_compact_json` |
//! | who asks for a review | `driver/application::who_asks_for_a_review` `host/executions::who_asks_for_a_review` `application::a_tool_box_from_end_to_end` |
//! | `tool.execution.requested` | `protocol/shapes::executions` `host/executions::an_application_executes_from_end_to_end` `driver/application::an_execution_is_never_anticipated` |
//! | identity and result, strict | `protocol/shapes::reports` `host/executions::refused_reports_leave_the_execution_open` |
//! | receipts | `protocol/shapes::executions` `client/tools::receipts` |
//! | order of checks on a report | `host/executions::refused_reports_leave_the_execution_open` `driver/application::a_refused_report_changes_nothing` |
//! | unknown and other subject are one answer | `host/executions::anothers_execution_and_an_unknown_one_are_the_same_answer` |
//! | output bound and shape | `host/executions::unusable_ends_are_uncertain` `driver/application::failures_and_unusable_outputs_are_uncertain` |
//! | single use | `host/executions::an_application_executes_from_end_to_end` `client/tools::a_lost_receipt_is_told_and_not_mended` |
//! | progress | `driver/application::progress_keeps_a_run_alive` `application::a_function_that_reports_outlives_the_idle_limit` |
//! | `maxPending` | `driver/application::nothing_pending_outlives_its_run` `host/executions::hanging_up_and_closing_end_an_execution` |
//! | a call too large or not preservable | `driver/application::a_call_that_is_too_large_is_not_handed_over` `driver/gate::arguments` |
//! | uncertain from the hand-over on (5.4) | `driver/application::the_uncertain_window` `application::a_function_that_fails_is_uncertain` |
//! | repeated executions, and more than 2,048 | `protocol/conformance::executions` `client/conformance::executions` `client/tools::a_repeated_execution_calls_nothing` |
//! | off (1.9) | `host/runs::the_earlier_row_answers` `host/order::endpoints_that_are_not_served_say_so` |
//!
//! | contract 4.10, 9, and where else it names keys | tests |
//! | --- | --- |
//! | 1.6, 1.9, 2.1(4): the feature and the refusal without a store | `host/operations::it_is_advertised_with_a_store_only` `driver/operations/runs::keys_need_a_store` |
//! | 1.8, 2.1(16-19), 6.4: order of checks; refusals before the headers | `host/operations::a_key_opens_nothing` `host/operations::a_reviewed_run_is_told_without_its_questions` |
//! | 4.10: the compact log holds approvals | `driver/operations/runs::what_is_seen_is_stored` |
//! | 4.10: a replay drops them, numbered from 1, and cannot prompt or execute | `driver/operations/runs::a_replay_tells_the_run_and_neither_prompts_nor_executes` `driver/histories/keyed::keyed_runs_survive_any_death_of_their_process` |
//! | 4.10: a stream closed during a review | `driver/operations/runs::an_interrupted_review_is_uncertain` `host/operations::an_interrupted_review_is_uncertain` |
//! | 9: scope | `driver/operations/runs::subjects_do_not_share_keys` `host/operations::keys_belong_to_subjects` |
//! | 9: fingerprint | `driver/operations::the_fingerprint_is_of_the_meaning` `driver/operations::every_member_is_part_of_the_fingerprint` |
//! | 9: claim before model work, events before they are sent | `driver/operations/runs::what_is_seen_is_stored` `driver/operations/runs::a_claim_that_fails_starts_nothing` |
//! | 9: conflict, in progress, replay | `driver/operations/runs::one_key_one_request` `host/operations::the_same_request_is_told_the_same_run` |
//! | 9: replay of what is uncertain, streamed and buffered | `driver/operations/runs::a_stream_that_is_closed_while_a_tool_works_is_uncertain` `cli/operations::killed_while_the_model_runs` |
//! | 9: a stored failure or cancellation | `driver/operations/runs::failures_and_cancellations_are_told_again` `host/operations::a_failure_is_told_again` |
//! | 9: disconnect while the model runs, cancellation during the claim | `driver/operations/runs::a_stream_that_is_closed_while_the_model_speaks_is_cancelled` `driver/operations/runs::whoever_leaves_during_the_claim_leaves_a_cancelled_operation` |
//! | 9: store failure mid-run | `driver/operations/runs::a_store_that_fails_at_any_call_ends_the_run_and_leaves_it_uncertain` `host/operations::a_store_that_fails_is_a_503` |
//! | 9: memory store's and record's limits | `driver/operations::a_full_memory_store_refuses_and_forgets_nothing` `driver/operations/runs::a_record_has_a_limit` |
//! | 9: file store: private folder, one writer | `cli/operations::the_folder_is_private_and_whole` |
//! | a process killed in every state | `cli/operations::killed_before_the_claim` `cli/operations::killed_while_a_tool_runs` `cli/operations::killed_after_a_tool_and_before_the_end` `cli/operations::killed_after_the_end` `cli/operations::killed_after_each_event` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is tests; clippy knows that only of a folder `tests` inside a package"
)]

mod additions;
mod application;
mod contract;
mod crowd;
mod encodings;
mod histories;
mod keyed;
mod loopback;
mod rows;
mod slow_sink;
mod support;
mod tls;
