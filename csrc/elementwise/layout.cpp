#include "elementwise/layout.h"

#include <utility>

namespace neuronsim {

bool lies_dense(const View& view) {
    return view.strides.empty() ||
           (view.strides.size() == 1 && view.strides[0] == storage_bytes(view.dtype));
}

Layout::Layout(const std::vector<int64_t>& shape, std::vector<View> inputs)
    : count(element_count(shape)), views(std::move(inputs)) {
    for (View& v : views) {
        shapes.push_back(shape);
        collapse(shapes.back(), v.strides);
        is_dense.push_back(lies_dense(v));
    }
    columns = find_rows();
    if (columns == 0) rows.clear();
}

int64_t Layout::find_rows() {
    int64_t n = count;
    for (size_t i = 0; i < views.size(); ++i)
        if (!is_dense[i] && shapes[i].size() == 2) n = shapes[i][1];
    for (size_t i = 0; i < views.size(); ++i) {
        const std::vector<int64_t>& strides = views[i].strides;
        const int64_t size = storage_bytes(views[i].dtype);
        if (is_dense[i]) rows.push_back({n * size, true});
        else if (strides == std::vector<int64_t>{0}) rows.push_back({0, false});
        else if (strides.size() == 2 && shapes[i][1] == n && strides[0] % size == 0 &&
                 (strides[1] == size || strides[1] == 0))
            rows.push_back({strides[0], strides[1] != 0});
        else return 0;
    }
    return n;
}

}  // namespace neuronsim
