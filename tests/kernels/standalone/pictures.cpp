// Normalising 8-bit pictures.
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

template <class T>
void all() {
    for (const int64_t channels : {1, 3, 4, 50})
        for (const int64_t pixels : {1, 31, 512, 2049}) normalizes<T>(pixels, channels);
    normalizes<T>(1500001, 3);
}

}  // namespace

void pictures() {
    all<float>();
    all<double>();
    all<nhwc::bfloat16>();
    all<_Float16>();
}

}  // namespace checks
