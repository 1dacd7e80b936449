"""What the chapters build on that put many behaviours together."""

from __future__ import annotations

from typing import Final

from streamfactory.conformance.cases.reading import STARTS

READING: Final = (
    *STARTS,
    "an_open_consumer_jumps_where_it_is_told",
    "tiny_limits_answer_the_same_rows",
    "a_range_read_twice_is_identical",
    "two_consumers_do_not_disturb_each_other",
    "a_range_split_anywhere_equals_the_whole",
    "reader_ends_exactly_where_it_is_told",
    "an_empty_answer_is_a_batch_that_says_why",
    "a_repeated_start_replays_after_rows",
    "a_start_that_retention_took_is_out_of_range",
    "a_loss_is_recorded_where_the_policy_goes_on",
    "a_start_beyond_latest_is_out_of_range",
    "a_stream_begun_again_is_another_incarnation",
    "every_offset_between_can_be_a_start",
    "what_crosses_a_process_pickles",
    "a_factory_pickles",
    "batches_outlive_their_consumer",
    "every_partition_is_answered",
    "bounds_are_true",
    "bounds_of_a_few_equal_those_of_all",
    "bounds_never_go_back",
    "retention_moves_earliest_alone",
    "growth_is_found",
    "looking_consumes_nothing",
)
"""Queries read ranges of partitions whose bounds they have looked up."""

WRITING: Final = (
    "an_aborted_attempt_leaves_nothing",
    "nothing_is_visible_before_the_decision",
    "an_empty_epoch_commits",
    "an_epoch_that_comes_again_has_no_effect",
    "the_last_epoch_and_its_position_are_remembered",
    "a_later_instance_fences_an_earlier_one",
    "looking_from_outside_fences_nobody",
    "writers_do_not_share_epochs",
    "abort_tolerates_missing_messages_and_repetition",
    "an_epoch_without_predecessor_is_refused",
)
"""Queries write epochs, again after a failure, under one writer."""
