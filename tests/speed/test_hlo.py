# SPDX-License-Identifier: Apache-2.0
"""What `hlo.py` counts, on a program small enough to count by eye."""

import pytest

from electra_jax.speed import exchanges, hlo

PROGRAM = """\
HloModule step, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), \
{1}: (2, {}, may-alias) }, entry_computation_layout={(f32[4,8]{1,0})->f32[8]{0}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%take_one (stack: f32[4,8], number: s32[]) -> f32[1,8] {
  %stack = f32[4,8]{1,0} parameter(0)
  %number = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %one = f32[1,8]{1,0} dynamic-slice(%stack, %number, %zero), dynamic_slice_sizes={1,8}
}

%put_one (stack: f32[4,8], row: f32[1,8], number: s32[]) -> f32[4,8] {
  %stack = f32[4,8]{1,0} parameter(0)
  %row = f32[1,8]{1,0} parameter(1)
  %number = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %put = f32[4,8]{1,0} dynamic-update-slice(%stack, %row, %number, %zero)
}

%body (carry: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
  %carry = (s32[], f32[4,8]{1,0}, /*index=2*/f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %from = f32[4,8]{1,0} get-tuple-element(%carry), index=1
  %to = f32[4,8]{1,0} get-tuple-element(%carry), index=2
  %taken = f32[1,8]{1,0:T(8,128)S(1)} fusion(%from, %i), kind=kLoop, calls=%take_one
  %given = f32[4,8]{1,0} fusion(%to, %taken, %i), kind=kLoop, calls=%put_one
  %next = s32[] copy(%i)
  ROOT %out = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%next, %from, %given)
}

%condition (carry: (s32[], f32[4,8], f32[4,8])) -> pred[] {
  %carry = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %end = s32[] constant(4)
  ROOT %more = pred[] compare(%i, %end), direction=LT
}

ENTRY %main (p: f32[4,8], q: bf16[3,5], z: s32[]) -> (f32[4,8], f32[8], bf16[6,5]) {
  %p = f32[4,8]{1,0} parameter(0)
  %q = bf16[3,5]{1,0} parameter(1)
  %z = s32[] parameter(2)
  %begin = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%z, %p, %p)
  %loop = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) while(%begin), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"4"},"dynamic_variables":[]}
  %done = f32[4,8]{1,0} get-tuple-element(%loop), index=2
  %flat = f32[32]{0} bitcast(%done)
  %mean = f32[8]{0} custom-call(%flat, %flat), custom_call_target="mean", metadata={op_name="a/b"}
  %sent = f32[8]{0} all-reduce(%mean), channel_id=1, replica_groups={{0,1}}, to_apply=%add
  %go = (bf16[3,5]{1,0}, bf16[6,5]{1,0}) all-gather-start(%q), channel_id=2, dimensions={0}
  %all = bf16[6,5]{1,0} all-gather-done(%go)
  ROOT %result = (f32[4,8]{1,0}, f32[8]{0}, bf16[6,5]{1,0}) tuple(%done, %sent, %all)
}
"""


def test_a_loop_counts_as_often_as_it_runs_and_names_of_bytes_cost_nothing():
    assert [(k.name, k.times) for k in hlo.kernels(PROGRAM)] == [
        ("taken", 4),
        ("given", 4),
        ("next", 4),
        ("mean", 1),
        ("sent", 1),
        ("go", 1),
    ]
    assert hlo.launches(PROGRAM) == 15


def test_bytes_are_what_is_read_and_written():
    bytes_ = {k.name: k.bytes for k in hlo.kernels(PROGRAM)}
    assert bytes_ == {
        "taken": 32 + 4 + 32,  # a row of 8 floats out of the stack, its number, the row
        "given": 32 + 4 + 32,  # the row and its number; of the stack only that row
        "next": 4 + 4,
        "mean": 128 + 32,  # an operand given twice is read once
        "sent": 32 + 32,
        "go": 30 + 30 + 60,  # bfloat16
    }
    assert hlo.bytes_moved(PROGRAM) == 4 * (68 + 68 + 8) + 160 + 64 + 120


def test_a_fusion_that_uses_all_of_an_operand_reads_all_of_it():
    whole = PROGRAM.replace("dynamic-slice(%stack, %number", "custom-call(%stack, %number")
    assert {k.name: k.bytes for k in hlo.kernels(whole)}["taken"] == 128 + 4 + 32


def test_a_transfer_that_runs_beside_others_moves_what_it_takes():
    line = "%go = (bf16[3,5]{1,0}, bf16[6,5]{1,0}) all-gather-start(%q), "
    sliced = "%go = ((bf16[3,5]{1,0}), bf16[1,5]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%q), "
    copied = "%go = (bf16[3,5]{1,0:S(1)}, bf16[3,5]{1,0}, u32[]{:S(2)}) copy-start(%q), "
    assert PROGRAM.count(line) == 1
    for started, bytes_ in ((sliced, 2 * 10), (copied, 2 * 30)):
        found = {k.name: k.bytes for k in hlo.kernels(PROGRAM.replace(line, started))}
        assert found["go"] == bytes_


def test_cycles_are_those_that_the_compiler_names_as_often_as_a_kernel_runs():
    assert hlo.cycles_expected(PROGRAM) is None
    line = "%next = s32[] copy(%i)"
    assert PROGRAM.count(line) == 1
    named = f'{line}, backend_config={{"window_config":{{"estimated_cycles":"250"}}}}'
    once = PROGRAM.replace('metadata={op_name="a/b"}', 'backend_config={"estimated_cycles":"7"}')
    assert hlo.cycles_expected(once.replace(line, named)) == 4 * 250 + 7


# As the compiler of TPUs leaves a loop: how often it runs follows from what it counts.
STEP = """\
  %one = s32[] constant(1)
  %again = s32[] copy(%i)
  %more_i = s32[] add(%again, %one)
  %next = s32[] copy(%more_i)
"""
COUNTED = (
    PROGRAM.replace('"known_trip_count":{"n":"4"},', "")
    .replace("  %next = s32[] copy(%i)\n", STEP)
    .replace("  %z = s32[] parameter(2)\n", "  %z = s32[] constant(0)\n")
)


@pytest.mark.parametrize(
    "old, new, times",
    [
        ("", "", 4),
        ("%end = s32[] constant(4)", "%end = s32[] constant(7)", 7),
        ("%z = s32[] constant(0)", "%z = s32[] constant(1)", 3),
        ("%one = s32[] constant(1)", "%one = s32[] constant(3)", 2),
        ("%z = s32[] constant(0)", "%z = s32[] constant(9)", 0),
        ("direction=LT", "direction=NE", None),
        ("add(%again, %one)", "multiply(%again, %one)", None),
        ("%z = s32[] constant(0)", "%z = s32[] custom-call()", None),
        ("add(%again, %one)", "add(%one, %one)", None),
    ],
)
def test_how_often_a_loop_runs_follows_from_what_it_counts(old, new, times):
    text = COUNTED.replace(old, new)
    if times is None:
        with pytest.raises(ValueError, match="loop: how often this loop runs is not in the text"):
            hlo.kernels(text)
    else:
        assert {k.name: k.times for k in hlo.kernels(text)}["taken"] == times


def test_a_loop_of_unknown_length_is_refused():
    unknown = PROGRAM.replace('"known_trip_count":{"n":"4"},', "")
    with pytest.raises(ValueError, match="loop: how often this loop runs is not in the text"):
        hlo.kernels(unknown)


def test_collectives_are_those_between_devices_with_what_they_result_in():
    found = [(c.kind, [str(s) for s in c.shapes], c.bytes) for c in exchanges.collectives(PROGRAM)]
    assert found == [("all-reduce", ["f32[8]"], 32), ("all-gather", ["bf16[6,5]"], 60)]


def test_pieces_of_one_exchange_count_once():
    line = next(x for x in PROGRAM.splitlines() if "all-reduce(" in x)
    again = line.replace("%sent", "%piece")
    other = again.replace("%piece", "%other").replace("channel_id=1", "channel_id=3")
    assert len(exchanges.collectives(PROGRAM.replace(line, f"{line}\n{again}"))) == 2
    assert len(exchanges.collectives(PROGRAM.replace(line, f"{line}\n{again}\n{other}"))) == 3


def test_a_kernel_whose_data_has_line_breaks_does_not_end_its_computation():
    """As splash attention's: its lines begin with brackets, and one looks like the end."""
    text = PROGRAM.replace(
        "  %next = s32[] copy(%i)\n",
        '  %kernel = f32[8]{0} custom-call(%taken), backend_config={"metadata":\n'
        '"block": 512\n'
        '}}, metadata={op_name="attention"}\n'
        "  %next = s32[] copy(%i)\n",
    )
    plain, found = (hlo.parse(one).computations["body"] for one in (PROGRAM, text))
    assert {*found} - {*plain} == {"kernel"}
    assert any(x.root for x in found.values())  # the last line


def test_aliased_results_are_counted_from_the_header():
    assert hlo.aliased(PROGRAM) == 2
    assert hlo.aliased("HloModule step\n") == 0


def test_text_that_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.parse("HloModule step\n")


@pytest.mark.parametrize(
    "shape, size",
    [
        (hlo.Shape("pred", (3,)), 3),
        (hlo.Shape("s4", (4,)), 2),
        (hlo.Shape("f8e4m3fn", (5,)), 5),
        (hlo.Shape("f32", ()), 4),
        (hlo.Shape("token", ()), 0),
    ],
)
def test_sizes_of_types(shape, size):
    assert shape.bytes == size


def test_an_exchange_in_a_loop_counts_as_often_as_the_loop_runs():
    told = "  %told = f32[1,8]{1,0} all-reduce(%taken), channel_id=3, to_apply=%add\n"
    text = PROGRAM.replace("  %next = s32[] copy(%i)\n", told + "  %next = s32[] copy(%i)\n")
    # Eight floats once and four times eight in the loop; bf16[6,5] are 60 bytes.
    assert exchanges.exchanged(text) == {"all-reduce": (5, 32 + 4 * 32), "all-gather": (1, 60)}
    unknown = text.replace('"known_trip_count":{"n":"4"},', "")
    assert exchanges.exchanged(unknown) == {"all-reduce": (2, 32 + 32), "all-gather": (1, 60)}


SENT = """\
  %fence = token[] after-all()
  %go_out = (f32[8]{0}, u32[], token[]) send(%sent, %fence), channel_id=7, is_host_transfer=true, \
frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.1_0",_xla_megascale_target="{1,2}",\
_xla_megascale_transfer_type="ALL_REDUCE"}
  %gone = token[] send-done(%go_out), channel_id=7, is_host_transfer=true
"""


def test_what_a_tpu_hands_to_its_host_for_other_slices_crosses():
    line = next(x for x in PROGRAM.splitlines() if "all-reduce(" in x)
    text = PROGRAM.replace(line, f"{line}\n{SENT}")
    assert exchanges.crossing(PROGRAM, 2) == {}
    assert exchanges.crossing(text, 2) == {"all-reduce": (1, 32)}

    # In the loop it runs four times.
    inside = "  %next = s32[] copy(%i)\n"
    sent_row = SENT.replace("%sent", "%taken").replace("f32[8]", "f32[1,8]")
    assert exchanges.crossing(PROGRAM.replace(inside, inside + sent_row), 2) == {
        "all-reduce": (4, 4 * 32)
    }


@pytest.mark.parametrize(
    "groups, crossing",
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", {}),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", {"all-reduce": (1, 32)}),
        # Two devices of each slice are in a group and can each send one half.
        ("replica_groups={{0,1,4,5},{2,3,6,7}}", {"all-reduce": (1, 16)}),
        ("replica_groups={}", {"all-reduce": (1, 8)}),
        ("replica_groups=[2,4]<=[8]", {}),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", {"all-reduce": (1, 32)}),
        ("replica_groups=[1,8]<=[8]", {"all-reduce": (1, 8)}),
        ("replica_groups=mesh['a'=2,'b'=4] {'b'}", {}),
        ("replica_groups=mesh['a'=2,'b'=4] {'a'}", {"all-reduce": (1, 32)}),
        ("replica_groups=mesh['a'=2,'b'=2,'c'=2] {'a','c'}", {"all-reduce": (1, 16)}),
        # Devices 0, 4, 1, 5, ... along the mesh.
        ("replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'a'}", {}),
        (
            "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}",
            {"all-reduce": (1, 32)},
        ),
    ],
)
def test_groups_of_devices_of_several_slices_cross(groups, crossing):
    """Eight devices, four in each of two slices; the all-gather is of one slice."""
    text = PROGRAM.replace("is_scheduled=true", "is_scheduled=true, num_partitions=8", 1)
    text = text.replace("replica_groups={{0,1}}", groups)
    text = text.replace("channel_id=2, ", "channel_id=2, replica_groups={{0,1},{6,7}}, ")
    assert exchanges.crossing(text, 4) == crossing
    assert exchanges.crossing(text, 8) == {}


def test_groups_that_cannot_be_read_are_refused():
    text = PROGRAM.replace("is_scheduled=true", "is_scheduled=true, num_partitions=8", 1)
    text = text.replace("replica_groups={{0,1}}", "replica_groups=new_way")
    with pytest.raises(ValueError, match="sent: which devices exchange is not in the text"):
        exchanges.crossing(text, 4)
