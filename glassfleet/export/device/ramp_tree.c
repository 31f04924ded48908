static inline void gf_fire(const double *x, gf_state *s)
{
    double degree[2 * GF_SPLITS_COUNT + 1];
    (void)x;
    degree[0] = 1.0;
    for (int i = 0; i < GF_SPLITS_COUNT; i++) {
        int node = gf_splits[2 * i];
        double begin = gf_ramps[2 * i], end = gf_ramps[2 * i + 1];
        double low = (end - s->z[gf_splits[2 * i + 1]]) / (end - begin);
        low = low < 0.0 ? 0.0 : low > 1.0 ? 1.0 : low;
        degree[2 * i + 1] = degree[node] * low;
        degree[2 * i + 2] = degree[node] * (1.0 - low);
    }
    for (int i = 0; i < GF_LEAVES_COUNT; i++)
        if (degree[gf_leaves[i]] > 0.0)
            gf_take(s, i, degree[gf_leaves[i]]);
}
