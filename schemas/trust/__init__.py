"""Who may speak: certificates, signatures, identities, revocation."""
