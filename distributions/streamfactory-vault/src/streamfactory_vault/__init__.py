"""References ``${vault:PATH#KEY}`` to secrets of OpenBao and HashiCorp Vault."""
