static inline double gf_polynomial(int rule, const double *z)
{
    const double *c = gf_coefficients[rule];
    double total = c[GF_INPUTS];
    for (int f = 0; f < GF_INPUTS; f++)
        total = total + c[f] * z[f];
    return total;
}
