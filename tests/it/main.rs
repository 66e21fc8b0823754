//! Client, host and driver together, and where each row of the contract is tested.
//!
//! A name without a crate is a test of this binary; `host/runs::x` is the test `x` in `crates/host/tests/it/runs.rs`.
//! `rows` checks that every named test is there. Rows of application tools, usage records and asynchronous sinks
//! are not of this version.
//!
//! | contract 3.4 | tests |
//! | --- | --- |
//! | approve | `loopback::each_outcome_from_end_to_end` `driver/sequences::approve` `host/runs::an_approved_call_runs_once_with_the_reviewed_arguments` |
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

mod contract;
mod crowd;
mod encodings;
mod histories;
mod keyed;
mod loopback;
mod rows;
mod slow_sink;
mod support;
