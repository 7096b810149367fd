#include "elementwise/layout.h"

#include <utility>

namespace neuronsim {

Layout::Layout(int64_t elements, std::vector<View> inputs) : count(elements), views(std::move(inputs)) {
    for (View& v : views) {
        v.axes = collapsed(v.axes, storage_bytes(v.dtype));
        is_dense.push_back(are_dense(v.axes, storage_bytes(v.dtype)));
    }
    columns = find_rows();
    if (columns == 0) rows.clear();
}

int64_t Layout::find_rows() {
    int64_t n = count;
    for (size_t i = 0; i < views.size(); ++i)
        if (!is_dense[i] && views[i].axes.size() == 2) n = views[i].axes[1].size;
    for (size_t i = 0; i < views.size(); ++i) {
        const Axes& axes = views[i].axes;
        const int64_t size = storage_bytes(views[i].dtype), stride = axes[0].stride;
        const bool has_rows = axes.size() == 2 && axes[1].size == n && stride % size == 0 &&
                              (axes[1].stride == size || axes[1].stride == 0);
        if (is_dense[i]) rows.push_back({n * size, true});
        else if (axes.size() == 1 && stride == 0) rows.push_back({0, false});
        else if (has_rows) rows.push_back({stride, axes[1].stride != 0});
        else return 0;
    }
    return n;
}

}  // namespace neuronsim
