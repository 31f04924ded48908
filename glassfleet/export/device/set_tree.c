static inline void gf_fire(const double *x, gf_state *s)
{
    double upper[GF_INPUTS], strength[GF_RULE_COUNT]; /* as many as nodes */
    int lower[GF_INPUTS], node[GF_RULE_COUNT];
    int begin = 0, end = 1;
    (void)x;
    gf_memberships(s->z, lower, upper);
    node[0] = 0;
    strength[0] = 1.0;
    while (begin < end) { /* one level of the tree: leaves first, then lower children, then upper ones */
        int next = end;
        for (int i = begin; i < end; i++)
            if (gf_rule[node[i]] >= 0)
                gf_take(s, gf_rule[node[i]], strength[i]);
        for (int side = 0; side < 2; side++) {
            for (int i = begin; i < end; i++) {
                if (gf_rule[node[i]] >= 0)
                    continue;
                int f = gf_feature[node[i]];
                int child = gf_child[node[i] * GF_N_SETS + lower[f] + side];
                double reached = strength[i] * (side ? upper[f] : 1.0 - upper[f]);
                if (child >= 0 && reached > 0.0) {
                    node[next] = child;
                    strength[next++] = reached;
                }
            }
        }
        begin = end;
        end = next;
    }
}
