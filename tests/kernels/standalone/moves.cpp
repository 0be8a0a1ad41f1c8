// Kernels that move values without computing: conversions between the formats, copies, joins, gathers and shuffles.
#include "checks.h"

namespace checks {
namespace {

template <class T>
void converts(int64_t channels, int64_t pixels) {
    constexpr int64_t SAMPLES = 2;
    const int64_t step = channels + (pixels % 2) * 3;
    const auto plain = bits<T>(SAMPLES * channels * pixels);
    std::vector<T> rows(static_cast<size_t>(SAMPLES * pixels * step)), wanted(rows), back(plain.size());
    for (int64_t n = 0; n < SAMPLES; ++n)
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t p = 0; p < pixels; ++p)
                wanted[(n * pixels + p) * step + c] = plain[(n * channels + c) * pixels + p];
    const std::string what = std::to_string(sizeof(T)) + " bytes, " + std::to_string(channels) + " channels, " +
                             std::to_string(pixels) + " pixels";
    function<void(int, const void*, void*, int64_t, int64_t, int64_t, int64_t)>("to_rows")(
        sizeof(T), plain.data(), rows.data(), SAMPLES, channels, pixels, step);
    same(rows, wanted, "to_rows " + what);
    if (step != channels) return;
    function<void(int, const void*, void*, int64_t, int64_t, int64_t)>("from_rows")(sizeof(T), rows.data(), back.data(),
                                                                                    SAMPLES, channels, pixels);
    same(back, plain, "from_rows " + what);
}

template <class T>
void rearranges(int64_t rows, int64_t outer, int64_t inner) {
    const int64_t width = outer * inner, taken = width + 3, left = width / 2;
    const auto from = bits<T>(rows * width);
    std::vector<T> shuffled(from.size()), copied(static_cast<size_t>(rows * (width + 5))), joined(from.size());
    std::vector<T> gathered(static_cast<size_t>(rows * taken)), wanted(shuffled), into(copied), twice(joined),
        picked(gathered);
    std::vector<int32_t> index(static_cast<size_t>(taken));
    for (int64_t j = 0; j < taken; ++j) index[j] = static_cast<int32_t>(j * 7 % width);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < inner; ++i) wanted[r * width + i * outer + o] = from[r * width + o * inner + i];
        for (int64_t c = 0; c < width; ++c) into[r * (width + 5) + c] = from[r * width + c];
        // the right half of each row, then the left one
        for (int64_t c = 0; c < width; ++c) twice[r * width + c] = from[r * width + (c + left) % width];
        for (int64_t j = 0; j < taken; ++j) picked[r * taken + j] = from[r * width + index[j]];
    }
    const std::string what =
        " " + std::to_string(sizeof(T)) + " bytes, " + std::to_string(outer) + " x " + std::to_string(inner);
    function<void(int, const void*, void*, int64_t, int64_t, int64_t)>("shuffle_channels")(
        sizeof(T), from.data(), shuffled.data(), rows, outer, inner);
    same(shuffled, wanted, "shuffle_channels" + what);
    function<void(int, const void*, int64_t, void*, int64_t, int64_t, int64_t)>("copy_rows")(
        sizeof(T), from.data(), width, copied.data(), width + 5, rows, width);
    same(copied, into, "copy_rows" + what);
    const void* halves[] = {from.data() + left, from.data()};
    const int64_t steps[] = {width, width}, widths[] = {width - left, left};
    function<void(int, const void* const*, const int64_t*, const int64_t*, int64_t, void*, int64_t)>("join_channels")(
        sizeof(T), halves, steps, widths, 2, joined.data(), rows);
    same(joined, twice, "join_channels" + what);
    function<void(int, const void*, void*, const int32_t*, int64_t, int64_t, int64_t)>("gather_channels")(
        sizeof(T), from.data(), gathered.data(), index.data(), rows, width, taken);
    same(gathered, picked, "gather_channels" + what);
}

template <class T>
void all() {
    for (const int64_t channels : {1, 2, 3, 4, 5, 8, 17, 64, 130})
        for (const int64_t pixels : {1, 7, 16, 64, 130}) converts<T>(channels, pixels);
    for (const int64_t rows : {1, 5, 700})
        for (const int64_t outer : {1, 2, 3, 4, 6})
            for (const int64_t inner : {1, 2, 3, 5, 24}) rearranges<T>(rows, outer, inner);
}

}  // namespace

void moves() {
    all<uint8_t>();
    all<uint16_t>();
    all<uint32_t>();
    all<uint64_t>();
}

}  // namespace checks
