"""2-D convolution as a matrix product that is never laid out: implicit GEMM.

Rows of the product are the pixels of the output, columns its channels, and K runs over the taps of
the filter and, inside, over blocks of input channels. What a row reads lies where its pixel and the
tap say; outside the image it reads nothing, which is the padding of zeros.
"""

from __future__ import annotations

import tilewright.language as tl
from tilewright.kernels.matmul import repeated_lanes, tile_origin


@tl.kernel(
    divisible=(
        "channels", "filters",
        "x_image", "x_row", "x_column", "w_filter", "w_row", "w_column",
        "out_image", "out_row", "out_column",
    ),
    unit=("x_channel", "w_channel", "out_channel"),
)  # fmt: skip
def convolution(
    x, w, bias, out,
    images, channels, height, width, filters, taps_y, taps_x, out_height, out_width,
    x_image, x_channel, x_row, x_column,
    w_filter, w_channel, w_row, w_column,
    out_image, out_channel, out_row, out_column,
    stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x, has_bias,
    CHANNELS_LAST: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Write the cross-correlation of `x` `[images, channels, height, width]` with `w` to `out`.

    `channels` and `filters` are those of one group, and grid axis 1 counts groups: `w` is
    `[groups * filters, channels, taps_y, taps_x]`, contiguous `bias` `[groups * filters]`.
    CHANNELS_LAST says that tiles are read along channels, the way to coalesce where those are
    contiguous; without it along pixels.
    """
    group = tl.program_id(1)
    first, column = tile_origin(images * out_height * out_width, filters, BLOCK_M, BLOCK_N)
    lanes = tl.arange(0, BLOCK_M).to(tl.uint32)
    depth = tl.arange(0, BLOCK_K)
    columns = repeated_lanes(column, filters, BLOCK_N)

    # The first pixel by 64-bit division, once; the lanes count on from there in 32 bits.
    first_x = first % out_width
    first_y = first // out_width % out_height
    first_image = first // (out_width * out_height)
    along_x = first_x.to(tl.uint32) + lanes
    along_y = first_y.to(tl.uint32) + along_x // out_width.to(tl.uint32)
    pixel_x = (along_x % out_width.to(tl.uint32)).to(tl.int32)
    pixel_y = (along_y % out_height.to(tl.uint32)).to(tl.int32)
    image = first_image + along_y // out_height.to(tl.uint32)
    is_pixel = image < images

    source_y = pixel_y * stride_y.to(tl.int32) - padding_y.to(tl.int32)
    source_x = pixel_x * stride_x.to(tl.int32) - padding_x.to(tl.int32)
    x_offsets = image * x_image + source_y * x_row + source_x * x_column
    x_group = x + group * channels * x_channel
    w_group = w + (group * filters + column) * w_filter
    blocks = tl.cdiv(channels, BLOCK_K).to(tl.int32)
    taps = taps_y.to(tl.int32) * taps_x.to(tl.int32)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # Counted, not divided: the position in the filter, and the first channel of the block.
    tap_y = tap_x = channel = tl.zeros_like(taps)
    for _ in range(taps * blocks):
        shift_y, shift_x = tap_y * dilation_y.to(tl.int32), tap_x * dilation_x.to(tl.int32)
        at_y, at_x = source_y + shift_y, source_x + shift_x
        is_inside = (at_y >= 0) & (at_y < height.to(tl.int32))
        is_inside = is_inside & (at_x >= 0) & (at_x < width.to(tl.int32)) & is_pixel
        is_channel = depth < tl.minimum(channels - channel, BLOCK_K).to(tl.int32)
        x_tap = x_group + shift_y * x_row + shift_x * x_column + channel * x_channel
        w_tap = w_group + tap_y * w_row + tap_x * w_column + channel * w_channel
        if CHANNELS_LAST:
            left = tl.load(
                x_tap + (x_offsets[:, None] + depth[None, :] * x_channel),
                mask=is_inside[:, None] & is_channel[None, :],
            )
        else:
            left = tl.trans(
                tl.load(
                    x_tap + (x_offsets[None, :] + depth[:, None] * x_channel),
                    mask=is_inside[None, :] & is_channel[:, None],
                )
            )
        right = tl.load(
            w_tap + (columns[:, None] * w_filter + depth[None, :] * w_channel),
            mask=is_channel[None, :],
        )
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
        is_last = channel + BLOCK_K >= channels
        channel = tl.where(is_last, 0, channel + BLOCK_K)
        tap_x = tl.where(is_last, tap_x + 1, tap_x)
        is_row_end = tap_x == taps_x.to(tl.int32)
        tap_x = tl.where(is_row_end, 0, tap_x)
        tap_y = tl.where(is_row_end, tap_y + 1, tap_y)

    lanes_n = tl.arange(0, BLOCK_N)
    inside_n = lanes_n < tl.minimum(filters - column, BLOCK_N).to(tl.int32)
    if has_bias != 0:
        shift = tl.load(bias + group * filters + column + lanes_n, mask=inside_n)
        total = total + shift.to(tl.float32)[None, :]
    origin = out + (group * filters + column) * out_channel
    rows = image * out_image + pixel_y * out_row + pixel_x * out_column
    if CHANNELS_LAST:
        tl.store(
            origin + (rows[:, None] + lanes_n[None, :] * out_channel),
            total,
            mask=is_pixel[:, None] & inside_n[None, :],
        )
    else:
        tl.store(
            origin + (rows[None, :] + lanes_n[:, None] * out_channel),
            tl.trans(total),
            mask=is_pixel[None, :] & inside_n[:, None],
        )
