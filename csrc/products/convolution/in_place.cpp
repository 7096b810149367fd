#include "products/convolution/convolver.h"

namespace neuronsim {

void Convolver::multiply_in_place() const {
    std::vector<int64_t> strides;
    ProductOperand a = x_;
    for (size_t d = 0; d < rank(); ++d) {
        strides.push_back(x_axes()[d + 1].stride);
        a.data -= c_.spatial[d].padding_low * strides[d];
    }
    const int64_t c = channel_stride(), n = x_axes()[0].stride;
    a.batch = {{groups_, c_.feature_groups > 1 ? c_.input_features * c : c_.batch * n}};
    a.vectors = position_axes(c_.batch, n, strides, outputs(0));
    a.depth = window_axes(strides, c_.input_features, c);
    product(a, w_, packed_, out_, how_, numerics_, draw_);
}

}  // namespace neuronsim
