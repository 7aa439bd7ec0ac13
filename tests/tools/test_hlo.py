# ruff: noqa: E501
import pytest

from t1_jax.tools.hlo import Module

TEXT = """\
HloModule jit_step, is_scheduled=true

%fused (p0: bf16[4,8,16], p1: s32[]) -> bf16[1,8,16] {
  %p0 = bf16[4,8,16]{2,1,0:T(8,128)(2,1)} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = bf16[1,8,16]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,8,16}
}

%body (state: (s32[], bf16[8,16], bf16[4,8,16])) -> (s32[], bf16[8,16], bf16[4,8,16]) {
  %state = (s32[], bf16[8,16]{1,0}, bf16[4,8,16]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = bf16[8,16]{1,0} get-tuple-element(%state), index=1
  %all = bf16[4,8,16]{2,1,0} get-tuple-element(%state), index=2
  %one = bf16[1,8,16]{2,1,0} fusion(%all, %i), kind=kLoop, calls=%fused
  %w = bf16[16,16]{1,0} all-gather(%one), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
  %y = bf16[8,16]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %kernel = bf16[8,16]{1,0} custom-call(%y), custom_call_target="tpu_custom_call", metadata={op_name="jit(step)/gmm/pallas_call"}
  ROOT %next = (s32[], bf16[8,16]{1,0}, bf16[4,8,16]{2,1,0}) tuple(%i, %kernel, %all)
}

%condition (state.1: (s32[], bf16[8,16], bf16[4,8,16])) -> pred[] {
  %state.1 = (s32[], bf16[8,16]{1,0}, bf16[4,8,16]{2,1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(3)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (arg: bf16[8,16]) -> f32[] {
  %arg = bf16[8,16]{1,0} parameter(0)
  %start = (s32[], bf16[8,16]{1,0}, bf16[4,8,16]{2,1,0}) tuple(%arg, %arg, %arg)
  %loop = (s32[], bf16[8,16]{1,0}, bf16[4,8,16]{2,1,0}) while(%start), condition=%condition, body=%body
  %conv = f32[4,8,16]{2,1,0} convolution(%a, %b), window={size=4 stride=3 pad=0_0 lhs_dilate=4}, dim_labels=0bf_0io->0bf
  %a = bf16[4,8,32]{2,1,0} parameter(1)
  %b = bf16[4,32,16]{2,1,0} parameter(2)
  ROOT %sum = f32[] all-reduce(%scalar), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%condition
  %scalar = f32[] parameter(3)
}
"""


def test_loops_count_with_their_trips():
    cost = Module(TEXT, lambda name, operands, results: 1000.0 * (name == "gmm")).cost()
    batched = 2 * 4 * 8 * 16 * 32
    assert cost.flops == 3 * (2 * 8 * 16 * 16 + 1000) + batched
    assert cost.kernels == {"gmm": 3}
    assert cost.collectives == {"all-gather": 3, "all-reduce": 1}
    assert cost.collective_bytes["all-gather"] == 3 * 3 * 8 * 16 * 2
    assert cost.collective_bytes["all-reduce"] == pytest.approx(2 * 4 * 3 / 4)


def test_of_what_is_sliced_the_slice_is_read():
    module = Module(TEXT)
    scope = module.computations["body"]
    traffic = module._traffic(scope["one"], scope, "fused")
    assert traffic == pytest.approx(2 * 8 * 16 * 2, abs=8)  # and an index


def test_a_loop_without_a_limit_is_refused():
    with pytest.raises(ValueError, match="trip count is not known"):
        Module(TEXT.replace("constant(3)", "parameter(1)")).cost()
