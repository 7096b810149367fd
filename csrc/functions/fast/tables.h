// Written by make_tables.py; do not edit.

// e^x: x = k ln2 + r, k a multiple of 1/16.
inline constexpr double powers_of_two[16] = {0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0, 0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0, 0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0, 0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};

// Relative error 2^-45.6.
inline constexpr double exp_coefficients[4] = {0x1.ffffffff5115ap-2, 0x1.55555555235b9p-3, 0x1.5556ba392a307p-5, 0x1.1111dd00e2339p-7};

// Relative error 2^-49.4.
inline constexpr double expm1_coefficients[5] = {0x1.0000000000000p-1, 0x1.55555554d864cp-3, 0x1.5555555516dd1p-5, 0x1.11120ffce45e0p-7, 0x1.6c17c057d3d84p-10};

// e^x: x = k ln2 + r, k a multiple of 1/4.
inline constexpr double powers_of_two_by_quarters[4] = {0x1.0000000000000p+0, 0x1.306fe0a31b715p+0, 0x1.6a09e667f3bcdp+0, 0x1.ae89f995ad3adp+0};

// Relative error 2^-48.3.
inline constexpr double exp_coefficients_by_quarters[6] = {0x1.0000000000c40p-1, 0x1.5555555555ac7p-3, 0x1.555554e4dfef9p-5, 0x1.111110df16109p-7, 0x1.6c29e0585af65p-10, 0x1.a02b00979e64ep-13};

// Relative error 2^-52.5.
inline constexpr double expm1_coefficients_by_quarters[7] = {0x1.0000000000000p-1, 0x1.5555555556863p-3, 0x1.5555555555cf4p-5, 0x1.111110c3517afp-7, 0x1.6c16c12de42fcp-10, 0x1.a02dd5cc2e202p-13, 0x1.a029de8116177p-16};

// ln x: x = 2^k m with m from log_offset on; r = m c - 1 with c near 1/m.
inline constexpr double log_offset = 0x1.6400000000000p-1;
inline constexpr double log_inverses[16] = {0x1.6800000000000p+0, 0x1.5900000000000p+0, 0x1.4b00000000000p+0, 0x1.3e00000000000p+0, 0x1.3200000000000p+0, 0x1.2700000000000p+0, 0x1.1d00000000000p+0, 0x1.1380000000000p+0, 0x1.0a80000000000p+0, 0x1.0000000000000p+0, 0x1.e900000000000p-1, 0x1.ce00000000000p-1, 0x1.b500000000000p-1, 0x1.9f00000000000p-1, 0x1.8b00000000000p-1, 0x1.7900000000000p-1};
inline constexpr double log_values[16] = {-0x1.5d1bdbf5809cap-2, -0x1.31871c9544185p-2, -0x1.071b85fcd590dp-2, -0x1.bc286742d8cd6p-3, -0x1.6d60fe719d21dp-3, -0x1.2266f190a5acbp-3, -0x1.b78c82bb0eda1p-4, -0x1.2cb0283f5de1fp-4, -0x1.494acc34d911cp-5, 0x0.0p+0, 0x1.788595a3577bap-5, 0x1.a4e7640b1bc38p-4, 0x1.4462b9dc9b3dcp-3, 0x1.ae2ca6f672bd4p-3, 0x1.09aa572e6c6d4p-2, 0x1.396ce359bbf54p-2};
inline constexpr double ln2 = 0x1.62e42fefa39efp-1;
inline constexpr double log2_e = 0x1.71547652b82fep+0;
inline constexpr double log10_e = 0x1.bcb7b1526e50ep-2;
inline constexpr double log10_2 = 0x1.34413509f79ffp-2;
// |r| is at most 0.029999.

// Relative error 2^-49.6.
inline constexpr double log_coefficients[7] = {-0x1.0000000000000p-1, 0x1.555555557c568p-2, -0x1.00000000231aep-2, 0x1.99998f04f8941p-3, -0x1.55554bcf83618p-3, 0x1.24ee1cf7d97b0p-3, -0x1.0052a5674fe1dp-3};

// sin x: x = n pi + r.
inline constexpr double pi_parts[3] = {0x1.921fb54000000p+1, 0x1.10b4610000000p-29, 0x1.a62633145c06ep-57};
inline constexpr double inverse_pi = 0x1.45f306dc9c883p-2;

// Relative error 2^-50.2.
inline constexpr double sin_coefficients[7] = {-0x1.555555555554fp-3, 0x1.1111111110062p-7, -0x1.a01a019e69282p-13, 0x1.71de394e22f61p-19, -0x1.ae63bde343a89p-26, 0x1.60f6ec3b31aaap-33, -0x1.a108a4c7ad2a3p-41};

// The bits of 1 / pi, the first one before the point.
inline constexpr uint64_t inverse_pi_bits[5] = {0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158, 0x6DC91B8E909374B8};

// atan x for x up to 1: x = tan(a + t) with tan a = j / 8.
inline constexpr double atan_values[16] = {0x0.0p+0, 0x1.fd5ba9aac2f6ep-4, 0x1.f5b75f92c80ddp-3, 0x1.6f61941e4def1p-2, 0x1.dac670561bb4fp-2, 0x1.1e00babdefeb4p-1, 0x1.4978fa3269ee1p-1, 0x1.700a7c5784634p-1, 0x1.921fb54442d18p-1, 0x1.b034f38649c88p-1, 0x1.cac7c57846f9ep-1, 0x1.e24dd44c855d1p-1, 0x1.f730bd281f69bp-1, 0x1.04e67277a01d7p+0, 0x1.0d38f2c5ba09fp+0, 0x1.14b1dd5f90ce1p+0};

// Relative error 2^-59.5.
inline constexpr double atan_coefficients[5] = {-0x1.5555555555551p-2, 0x1.9999999980101p-3, -0x1.24924870f0a18p-3, 0x1.c718fcdd11d1ep-4, -0x1.70e273c9f2ce4p-4};
inline constexpr double half_pi_parts[2] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

// erf x / x in quarters up to 4.

// Relative error 2^-44.0.
inline constexpr double erf_coefficients[9][16] = {
    {0x1.1f5e1a35c3b89p+0, 0x1.13e08c7a16a26p+0, 0x1.fe8f1614e4ebbp-1, 0x1.cacbc181f7fbdp-1, 0x1.9450bb1ec6057p-1, 0x1.611065fc93172p-1, 0x1.3448f8704c35dp-1, 0x1.0ee12190b194ap-1, 0x1.e09a79ee7db91p-2, 0x1.aed200cd67bebp-2, 0x1.8603df090937fp-2, 0x1.64282886fef72p-2, 0x1.47ad3ff3018a1p-2, 0x1.2f6827c1b08c7p-2, 0x1.1a7b909ae7a4ap-2, 0x1.08420fc7a4912p-2},
    {-0x1.7d900b9e694e8p-4, -0x1.09ac3c1b18a5ap-2, -0x1.7edef5d88ff21p-2, -0x1.b29323959dc83p-2, -0x1.ad1533f371e7cp-2, -0x1.82ad1810bd638p-2, -0x1.48b7c44d5280cp-2, -0x1.0e9e17d610453p-2, -0x1.b87061646af2fp-3, -0x1.675759c9f9a87p-3, -0x1.284241dbd6189p-3, -0x1.ef1beecc9d51fp-4, -0x1.a35763ed2fd87p-4, -0x1.6793ed0a046c2p-4, -0x1.37b3d82995401p-4, -0x1.10c83ad00a40cp-4},
    {-0x1.766bd13cf67e3p-2, -0x1.276ba5c06234ap-2, -0x1.5275c582f0a8ep-3, -0x1.4574d9b0aaf6cp-5, 0x1.bbf4930fccdccp-5, 0x1.ab151a7972ddfp-4, 0x1.df8987f77ecb2p-4, 0x1.b7e9ea2ad827ap-4, 0x1.6bfb99623b9d8p-4, 0x1.1e314dd8ece7fp-4, 0x1.ba09e2a357fb1p-5, 0x1.560bd27a00c69p-5, 0x1.0bd914bd58e50p-5, 0x1.a9f5181dfa64cp-6, 0x1.57e94aec02bb2p-6, 0x1.199374fd5823bp-6},
    {0x1.c5a8df15d43f5p-5, 0x1.24d6bb3985f6ap-3, 0x1.671c4ee5f2f8ap-3, 0x1.367b5cd32861bp-3, 0x1.8a284bb2a1d73p-4, 0x1.3fc0dab3d19c7p-5, -0x1.685f0dd2e25b6p-10, -0x1.5d2c622ac2822p-6, -0x1.ae6bfd97afbaap-6, -0x1.8349c33e64dcdp-6, -0x1.3244824220a51p-6, -0x1.cac3dc8539b76p-7, -0x1.52a6a0df05c8cp-7, -0x1.f70a65c3b2b14p-8, -0x1.7b269634171afp-8, -0x1.229a7def60e62p-8},
    {0x1.b4c166332e028p-4, 0x1.01ba55d8d6976p-4, 0x1.d2c7a6e63eed1p-10, -0x1.6f0e98878029fp-5, -0x1.f10767c6ea2bbp-5, -0x1.9e43d513639b7p-5, -0x1.e76d97c59e854p-6, -0x1.6e17e74a8096bp-7, -0x1.63245993e4ecdp-15, 0x1.21e01f6dbd313p-8, 0x1.4b850d3ecd41ap-8, 0x1.143ef76ba7061p-8, 0x1.9a163840f421ap-9, 0x1.2496774c2acc5p-9, 0x1.a01e86b86fd1ep-10, 0x1.2b93928f95fd5p-10},
    {-0x1.40deca016b514p-6, -0x1.7d1e22e6166c7p-5, -0x1.7ea5f574d4cf4p-5, -0x1.a39a9ea8d12ebp-6, -0x1.2fba4e8aaf769p-11, 0x1.dbbed324cc886p-7, 0x1.166e2a71aed54p-6, 0x1.8b93c435ba235p-7, 0x1.82ade0ddc0ebep-8, 0x1.b241e2a6e5064p-10, -0x1.4fd579ca7aa7dp-12, -0x1.c84288951fb4ap-11, -0x1.ac1e493c8112bp-11, -0x1.4154dc4ae96b5p-11, -0x1.bfb6f4f5fe3ddp-12, -0x1.3304db5081bcfp-12},
    {-0x1.936fa299a6fffp-6, -0x1.390f05c482c64p-7, 0x1.194e06e5c025ep-7, 0x1.1d687e9d98c11p-6, 0x1.d5673237b3754p-7, 0x1.6c42dd497d8b6p-8, -0x1.a00f918bd8079p-10, -0x1.1674ec8d23cdcp-8, -0x1.dc46d50527b1ep-9, -0x1.0748c6b813a09p-9, -0x1.80cb88700bd02p-11, -0x1.89ab3f47d8123p-14, 0x1.e8e4bd92c016ep-14, 0x1.21dcf909f1e48p-13, 0x1.c04b6c4cc6293p-14, 0x1.3328bb923fd24p-14},
    {0x1.47150eec763f2p-8, 0x1.63829d33512eap-7, 0x1.15e5ee3d3b4bap-7, 0x1.644178e85545cp-10, -0x1.10414ae381df9p-8, -0x1.4ae599f06d3fbp-8, -0x1.72b7c375b0b56p-9, -0x1.879c257d5bd56p-12, 0x1.ae8f3fce95b96p-11, 0x1.d500035d0ad45p-11, 0x1.1ad90aa748b5cp-11, 0x1.c8bedaf05d2aap-13, 0x1.99a7f84a8469cp-15, -0x1.5a2b7fc261e48p-17, -0x1.5b32d258ff584p-16, -0x1.1a2f4be236589p-16},
    {0x1.2e39bec24f52ap-8, 0x1.cc45c50a24742p-11, -0x1.7dc3e9a2cbbcbp-9, -0x1.db6a3cda8b1c7p-9, -0x1.abf280214d0fcp-10, 0x1.30d4d17c150c8p-11, 0x1.69419229f082ap-10, 0x1.f4997858b7af3p-11, 0x1.133d753143b1fp-12, -0x1.079ac966ee88fp-13, -0x1.91415742cc69dp-13, -0x1.00edd60b7b2fep-13, -0x1.ad63b2759a0d3p-15, -0x1.bc50e7a4b37f5p-17, 0x1.194aff19a91b2p-23, 0x1.79f778799329cp-19},
};

// The same up to erf_end, in x^2 erf_scale - 1.
inline constexpr double erf_end = 0x1.f800000000000p+1;
inline constexpr double erf_scale = 0x1.0831051872093p-3;

// Relative error 2^-44.9.
inline constexpr double erf_whole_coefficients[24] = {0x1.6fc14a09a4c6fp-2, -0x1.6f422007510b3p-3, 0x1.1184b57210b0fp-3, -0x1.bde9f7784a054p-4, 0x1.72e43fa74d3acp-4, -0x1.2fe7f6c07cd03p-4, 0x1.dfe8d9f6c1ae1p-5, -0x1.681484716f9edp-5, 0x1.fd5acabe40d93p-6, -0x1.5240dc32fe10bp-6, 0x1.a548b3159bfb3p-7, -0x1.ec3586e534c90p-8, 0x1.0e14782e256cbp-8, -0x1.1703dd030767cp-9, 0x1.1032d9c85bec6p-10, -0x1.f5503b90300e8p-12, 0x1.b192a1e6e0a05p-13, -0x1.686df5e879ff2p-14, 0x1.2d664f4c70c66p-15, -0x1.bff85269a5cb7p-17, 0x1.cf1a1de108ad3p-19, -0x1.50d4becb4bc98p-20, 0x1.f2a0d22b01d05p-21, -0x1.2f171c7df6e6ap-22};

// e^(a^2/2) Phi(-a): a + 1 in quarters of octaves up to 16, by the bits of float64 from 50 on.
inline constexpr double tail_centres[16] = {0x1.0000000000000p-3, 0x1.8000000000000p-2, 0x1.4000000000000p-1, 0x1.c000000000000p-1, 0x1.4000000000000p+0, 0x1.c000000000000p+0, 0x1.2000000000000p+1, 0x1.6000000000000p+1, 0x1.c000000000000p+1, 0x1.2000000000000p+2, 0x1.6000000000000p+2, 0x1.a000000000000p+2, 0x1.0000000000000p+3, 0x1.4000000000000p+3, 0x1.8000000000000p+3, 0x1.c000000000000p+3};
inline constexpr int64_t tail_first = int64_t{0x3FF} << 2;

// Relative error 2^-44.4.
inline constexpr double tail_coefficients[11][16] = {
    {0x1.d0af2b9f3f96ep-2, 0x1.84b705ec74443p-2, 0x1.4b1de1265fdfap-2, 0x1.1e7c2d26d017dp-2, 0x1.d898de09c6f19p-3, 0x1.7b5abd2fd03adp-3, 0x1.3aadddf19e980p-3, 0x1.0bb968cded93fp-3, 0x1.b396f9cf1e260p-4, 0x1.5b5acd3b15fbbp-4, 0x1.201fa9259b7acp-4, 0x1.eba5fe5b14b2ap-5, 0x1.9269722f50cddp-5, 0x1.43a38ae46ed46p-5, 0x1.0e7dcd1d93192p-5, 0x1.d087ad6e0cbf6p-6},
    {-0x1.5e6e6dc95b727p-2, -0x1.06bfb10497cb9p-2, -0x1.93234d0a8ef2bp-3, -0x1.3baf57769aa08p-3, -0x1.c49321dc9c5d0p-4, -0x1.3253b6cdb4cfap-4, -0x1.b405cc6b87d59p-5, -0x1.432b1910e5ce9p-5, -0x1.b6038a8092af4p-6, -0x1.1be2c5acaaf4bp-6, -0x1.8b195531b3a55p-7, -0x1.21ae92685282cp-7, -0x1.86b8437cac4d1p-8, -0x1.fbf2cfdc6f07ep-9, -0x1.63cfc8735fd6dp-9, -0x1.06cdbe7c1ed56p-9},
    {0x1.a4e15de61428cp-3, 0x1.222f238abb57fp-3, 0x1.9a45b2262667ap-4, 0x1.28beedc5d8e34p-4, 0x1.7b79d1bfcaae6p-5, 0x1.bd45f4ef483dap-6, 0x1.15aa6bd488cd3p-6, 0x1.6c5e3c927cb97p-7, 0x1.a29f04f5013d8p-8, 0x1.bfbaed8d610dbp-9, 0x1.07e3e93700ed8p-9, 0x1.4ea50718ea8cap-10, 0x1.7625d65565493p-11, 0x1.8af23eaa8e0a9p-12, 0x1.d0fb6385ac42fp-13, 0x1.27e80535b5d58p-13},
    {-0x1.b02b1fe3f28d2p-4, -0x1.15c923236e60ap-4, -0x1.6e920728d6facp-5, -0x1.ef9f7e801d2c0p-6, -0x1.1f33fe5aef632p-6, -0x1.2962f4625b159p-7, -0x1.49badda0f12a7p-8, -0x1.838c5240e0dcep-9, -0x1.7e8220d4c75d2p-10, -0x1.55bc0088c8eddp-11, -0x1.57ff8594ec123p-12, -0x1.7b5fb85681216p-13, -0x1.6189187abe5b3p-14, -0x1.305575e99e8f9p-15, -0x1.2ddfa2836f039p-16, -0x1.4b934f09fb8bfp-17},
    {0x1.89deabe7d17aep-5, 0x1.dc32d9e829a92p-6, 0x1.27b80fe96154cp-6, 0x1.78a81433a3049p-7, 0x1.8ff2a58c55e74p-8, 0x1.721ebe317b357p-9, 0x1.70c53ca764dd0p-10, 0x1.87b7101719da4p-11, 0x1.4fb4a0b7e6ebcp-12, 0x1.fa3b67793b53cp-14, 0x1.b643d5fbafc79p-15, 0x1.a67415233e81cp-16, 0x1.49cbdb8793768p-17, 0x1.d0ed67d1a4e13p-19, 0x1.857df7be68768p-20, 0x1.71c8031c93319p-21},
    {-0x1.460a910aae93fp-6, -0x1.7506fe0b9ef70p-7, -0x1.b6a736cc9ec94p-8, -0x1.08ab2af9f3f29p-8, -0x1.038d13027c4c9p-9, -0x1.b17805cdd8d3cp-11, -0x1.8759592c2057ep-12, -0x1.7a617e19c2951p-13, -0x1.1c0d1e9eb6992p-14, -0x1.6caa32086886ap-16, -0x1.1138dfe4bc80ap-17, -0x1.ce785e710b9bfp-19, -0x1.2fdcd3549b4d0p-20, -0x1.601bc527359bdp-22, -0x1.f36e93e76045fp-24, -0x1.9a75ad1f41e49p-25},
    {0x1.f1fd5944f6e5bp-8, 0x1.0ed65c41411a5p-8, 0x1.2ee7e9df14baap-9, 0x1.5bd19745e7da1p-10, 0x1.3cf8a5ce464b0p-11, 0x1.e145f89902ed9p-13, 0x1.8c5d494b1b749p-14, 0x1.5ee01ad8c998cp-15, 0x1.d0dbdcdf60170p-17, 0x1.ffea95c2c7af6p-19, 0x1.4dc8d1cb211ccp-20, 0x1.f21874267a2efp-22, 0x1.14a262d6cb2d6p-23, 0x1.0873012500903p-25, 0x1.3e4157a4bf4b6p-27, 0x1.c5826fccc73d4p-29},
    {-0x1.62d4be6057242p-9, -0x1.704744b3d7ea5p-10, -0x1.8922ad12877bbp-11, -0x1.af0bbbc14e0edp-12, -0x1.6ed5627937e29p-13, -0x1.fd7e8c2a4a423p-15, -0x1.80e3f85bb7557p-16, -0x1.397d1a23e7fd5p-17, -0x1.70b9c1384f075p-19, -0x1.5ea3ef2b1ffd4p-21, -0x1.8fed97d944993p-23, -0x1.08116e4cb6e88p-24, -0x1.f1af541e442b6p-27, -0x1.89ec7cba4ed3ep-29, -0x1.93242a2df76fap-31, -0x1.f2c326a3a98efp-33},
    {0x1.dbcf623c84c25p-11, 0x1.d89eb99d5ad4ap-12, 0x1.e2f4605756110p-13, 0x1.fb0d6fd89f1e4p-14, 0x1.94a4b2ac0b66ap-15, 0x1.025a8083999b8p-16, 0x1.67b50aca94ac1p-18, 0x1.0eb0d2556f3eep-19, 0x1.1c42ad95c9ea4p-21, 0x1.d58a543d91a98p-24, 0x1.d67a1ce8e1e95p-26, 0x1.13d903d8bcbb2p-27, 0x1.badfcaa653dbdp-30, 0x1.231fd54d93b7cp-32, 0x1.fbb90114c703fp-35, 0x1.110c7b958e400p-36},
    {-0x1.2f5414a819f72p-12, -0x1.20fab31c245f8p-13, -0x1.1b4a3a5d440bdp-14, -0x1.1d6931a600304p-15, -0x1.aff4b49e9c715p-17, -0x1.fc8fbc3adeef2p-19, -0x1.4724d354a5538p-20, -0x1.c815c6ed83cbcp-22, -0x1.b47b87997bf82p-24, -0x1.3915a62df5742p-26, -0x1.13ae82db725aep-28, -0x1.1f2c6175169b9p-30, -0x1.92cf16a457777p-33, -0x1.b4d28716b7a19p-36, -0x1.4338623f9f956p-38, -0x1.2d6ea56fdf0c9p-40},
    {0x1.6ecdf368cab7fp-14, 0x1.4ffa2bebd2ff5p-15, 0x1.3cb69691bf387p-16, 0x1.32e591c05e275p-17, 0x1.b61bf06fc5960p-19, 0x1.de217853ab218p-21, 0x1.1d94f3feb015ap-22, 0x1.7265e00b894f6p-24, 0x1.3f1f6f55ce408p-26, 0x1.91b1abe388a96p-29, 0x1.393af684e7702p-31, 0x1.238b9ecfa54ebp-33, 0x1.5e999b09bf426p-36, 0x1.3dc7c4b9264abp-39, 0x1.9257ba015a062p-42, 0x1.471975b042892p-44},
};

// The same times a + tail_middle up to 15, in (a - tail_middle) / (a + tail_middle).
inline constexpr double tail_middle = 0x1.4000000000000p+2;

// Relative error 2^-54.4.
inline constexpr double tail_whole_coefficients[20] = {0x1.89d3abe1f95aep-1, -0x1.54ad03f27ca1bp-1, 0x1.fb31653876efep-2, -0x1.410ed5f87565cp-2, 0x1.51f6329f065b6p-3, -0x1.1b1c254cbc3cdp-4, 0x1.54b4d4f09d287p-6, -0x1.88590e75a78abp-9, -0x1.a25030b47a28dp-11, 0x1.1daf1a46c8da0p-11, -0x1.f217c5771997dp-15, -0x1.a17235775d865p-15, 0x1.17f91ac9e09b6p-16, 0x1.0ba0e1d8756bfp-18, -0x1.755923b3f9d48p-19, -0x1.83895fb29f40ep-22, 0x1.d34b5984bdd45p-22, 0x1.3a8256ac0523cp-24, -0x1.898e3b5c827c9p-25, -0x1.c4c1762e37c8cp-27};
inline constexpr double sqrt_2 = 0x1.6a09e667f3bcdp+0;
inline constexpr double two_by_sqrt_pi = 0x1.20dd750429b6dp+0;
inline constexpr double inverse_sqrt_2pi = 0x1.9884533d43651p-2;

// gelu_tanh is x / (1 + e^-(x (a + b x^2))); gelu_sigmoid x / (1 + e^-1.702x).
inline constexpr double gelu_tanh_linear = 0x1.9884533d43651p+0;
inline constexpr double gelu_tanh_cubic = 0x1.2444f2a4d8b4bp-4;
inline constexpr double gelu_sigmoid_parts[2] = {0x1.b3b645a000000p+0, 0x1.cac083126e979p-32};
// Where the derivatives are zero.
inline constexpr double silu_dx_root = -0x1.474973c84120bp+0;
inline constexpr double gelu_dx_root = -0x1.80ead197f00b4p-1;
