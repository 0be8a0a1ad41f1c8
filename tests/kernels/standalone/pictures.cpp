// 8-bit pictures: packing their pixels, and normalising them.
#include "checks.h"

namespace checks {
namespace {

template <class T>
void normalizes(int64_t pixels, int64_t channels) {
    using A = nhwc::accumulate_t<T>;
    const auto from = bits<uint8_t>(pixels * channels);
    std::vector<A> mean(static_cast<size_t>(channels)), std(mean);
    for (int64_t c = 0; c < channels; ++c) {
        mean[c] = static_cast<A>(drawn());
        std[c] = static_cast<A>(std::abs(drawn()) + 0.25);
    }
    std::vector<T> found(from.size());
    std::vector<double> wanted(from.size());
    for (size_t k = 0; k < from.size(); ++k)
        wanted[k] = (static_cast<double>(from[k]) / 255.0 - mean[k % channels]) / std[k % channels];
    function<void(int, const void*, void*, int64_t, int64_t, const void*, const void*)>("normalize")(
        code<T>(), from.data(), found.data(), pixels, channels, mean.data(), std.data());
    close(found, wanted, 2.0, label<T>("normalize", {pixels, channels}));
}

void packs(int64_t pixels) {
    const auto from = bits<uint8_t>(pixels * 4);
    std::vector<uint8_t> found(static_cast<size_t>(pixels * 3)), wanted(found);
    for (int64_t k = 0; k < pixels * 3; ++k) wanted[k] = from[k / 3 * 4 + k % 3];
    function<void(const void*, void*, int64_t)>("pack_pixels")(from.data(), found.data(), pixels);
    same(found, wanted, "pack_pixels " + std::to_string(pixels));
}

template <class T>
void all() {
    for (const int64_t channels : {1, 3, 4, 50})
        for (const int64_t pixels : {1, 31, 512, 2049}) normalizes<T>(pixels, channels);
    normalizes<T>(1500001, 3);
}

}  // namespace

void pictures() {
    for (const int64_t pixels : {1, 2, 3, 4, 5, 6, 7, 100, 200003}) packs(pixels);
    all<float>();
    all<double>();
    all<nhwc::bfloat16>();
    all<_Float16>();
}

}  // namespace checks
