//! Checks which gateways a node may dial.

use gantry_net::GatewayUrl;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "{0} is not encrypted, and the token would be readable on the way; use https://, or give --insecure if the \
         network between is trusted"
    )]
    NotEncrypted(String),
}

/// Allows unencrypted connections only to this machine, unless the operator passes `--insecure`.
pub fn check_address(url: &GatewayUrl, insecure: bool) -> Result<(), AddressError> {
    if url.secure || url.is_loopback() || insecure {
        return Ok(());
    }
    Err(AddressError::NotEncrypted(url.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unencrypted_addresses_are_local_only() {
        let check = |text: &str, insecure| check_address(&GatewayUrl::parse(text).unwrap(), insecure).is_ok();
        assert!(check("ws://127.0.0.1:7770", false) && check("http://localhost:1", false));
        assert!(check("wss://gantry.example.com", false) && check("ws://[::1]:7770", false));
        assert!(!check("ws://gantry.example.com", false) && !check("10.0.0.1:7770", false));
        assert!(!check("ws://localhost.example.com", false));
        assert!(check("ws://10.0.0.1:7770", true));
    }
}
