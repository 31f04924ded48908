"""Who may say what: certificates, signatures, identities, revocation."""
