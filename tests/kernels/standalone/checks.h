// What the families' checks share: typed values at random, functions by name, and the comparison with plain loops.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "vector.h"

namespace checks {

extern void* library;
extern int checked, failed;

// The function nhwc_<name> of the library, of the given type.
template <class F>
F* function(const char* name) {
    void* found = dlsym(library, (std::string("nhwc_") + name).c_str());
    if (found == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(2);
    }
    return reinterpret_cast<F*>(found);
}

template <class T>
int code() {
    if (std::is_same<T, float>::value) return nhwc::FLOAT32;
    if (std::is_same<T, double>::value) return nhwc::FLOAT64;
    return std::is_same<T, nhwc::bfloat16>::value ? nhwc::BFLOAT16 : nhwc::FLOAT16;
}

template <class T>
double epsilon() {
    if (std::is_same<T, float>::value) return std::numeric_limits<float>::epsilon();
    if (std::is_same<T, double>::value) return std::numeric_limits<double>::epsilon();
    return std::is_same<T, nhwc::bfloat16>::value ? 1.0 / 128 : 1.0 / 1024;
}

// Between -2 and 2, the same at every run.
inline double drawn() {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 40) / static_cast<double>(1 << 22) - 2.0;
}

template <class T>
std::vector<T> values(int64_t count) {
    std::vector<T> made(static_cast<size_t>(count));
    for (T& each : made) nhwc::store(&each, static_cast<nhwc::accumulate_t<T>>(drawn()));
    return made;
}

template <class T>
std::vector<T> bits(int64_t count) {
    std::vector<T> made(static_cast<size_t>(count));
    for (size_t k = 0; k < made.size(); ++k) made[k] = static_cast<T>(k * 2654435761u + k / 251);
    return made;
}

template <class T>
double at(const std::vector<T>& from, int64_t place) {
    return static_cast<double>(nhwc::load(from.data() + place));
}

inline void judge(bool right, const std::string& what) {
    ++checked;
    if (!right) {
        ++failed;
        std::printf("wrong: %s\n", what.c_str());
    }
}

template <class T>
void same(const std::vector<T>& found, const std::vector<T>& wanted, const std::string& what) {
    judge(found == wanted, what);
}

// Within `roundings` of the largest value; NaN only where one is wanted.
template <class T>
void close(const std::vector<T>& found, const std::vector<double>& wanted, double roundings, const std::string& what) {
    double largest = 0.0, error = 0.0;
    bool right = found.size() == wanted.size();
    for (size_t k = 0; right && k < wanted.size(); ++k) {
        const double have = at(found, static_cast<int64_t>(k));
        right = std::isnan(have) == std::isnan(wanted[k]);
        if (std::isnan(wanted[k])) continue;
        largest = std::max(largest, std::abs(wanted[k]));
        error = std::max(error, std::abs(have - wanted[k]));
    }
    judge(right && error <= roundings * epsilon<T>() * largest, what + ", error " + std::to_string(error));
}

template <class T>
std::string label(const char* family, std::initializer_list<int64_t> numbers) {
    static const char* const names[] = {"float32", "float64", "bfloat16", "float16"};
    std::string made = std::string(family) + " " + names[code<T>()];
    for (const int64_t each : numbers) made += " " + std::to_string(each);
    return made;
}

void moves();     // moves.cpp
void channels();  // channels.cpp
void windows();   // windows.cpp
void sampling();  // sampling.cpp
void pictures();  // pictures.cpp

}  // namespace checks
