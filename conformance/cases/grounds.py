"""The cases that modules need which combine many behaviours."""

from __future__ import annotations

from typing import Final

from streamfactory.conformance.cases.reading import STARTS

READING: Final = (
    *STARTS,
    "an_open_consumer_seeks_to_any_start",
    "small_limits_return_the_same_rows",
    "a_range_read_twice_is_identical",
    "two_consumers_do_not_disturb_each_other",
    "a_range_split_anywhere_equals_the_whole",
    "a_range_ends_exactly_before_its_end",
    "an_empty_result_is_a_batch_with_its_state",
    "a_repeated_start_replays_after_rows",
    "a_start_before_earliest_is_out_of_range",
    "a_loss_is_recorded_when_the_policy_continues",
    "a_start_beyond_latest_is_out_of_range",
    "a_recreated_topic_has_another_incarnation",
    "every_offset_between_can_be_a_start",
    "objects_sent_to_processes_pickle",
    "a_factory_pickles",
    "batches_outlive_their_consumer",
    "every_partition_is_answered",
    "bounds_are_true",
    "bounds_of_a_few_equal_those_of_all",
    "bounds_never_go_back",
    "retention_moves_earliest_alone",
    "growth_is_found",
    "metadata_calls_consume_nothing",
)
"""Queries read ranges of partitions whose bounds they have looked up."""

WRITING: Final = (
    "an_aborted_attempt_leaves_nothing",
    "nothing_is_visible_before_the_decision",
    "an_empty_epoch_commits",
    "a_repeated_epoch_has_no_effect",
    "the_last_epoch_and_its_position_are_remembered",
    "a_later_instance_fences_an_earlier_one",
    "fetching_the_last_commit_fences_no_instance",
    "writers_do_not_share_epochs",
    "abort_tolerates_missing_messages_and_repetition",
    "an_epoch_without_predecessor_is_refused",
)
"""Queries write epochs, again after a failure, under one writer."""
