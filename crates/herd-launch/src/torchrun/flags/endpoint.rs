//! Where nodes meet, and addresses that may connect.

use std::net::Ipv6Addr;

use super::reader::Bad;
use crate::rendezvous::Endpoint;
use crate::store::Network;

/// Longest name of a host.
const HOST_MAX: usize = 253;

/// `host`, `host:port`, `[::1]:port`; without a host it is this machine.
pub(super) fn parse(text: &str) -> Result<Endpoint, Bad> {
    let hint = "give HOST:PORT, with an IPv6 address in brackets: `[fd00::1]:29400`";
    let text = text.trim();
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        let host = address.to_string();
        return Ok(Endpoint { host, port: None });
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest
            .split_once(']')
            .ok_or_else(|| Bad::new("has an opening bracket only", hint))?;
        let address: Ipv6Addr = address
            .parse()
            .map_err(|_error| Bad::new("has no IPv6 address in its brackets", hint))?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(Bad::new("goes on after its bracket", hint)),
        };
        (address.to_string(), port)
    } else {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        (
            if host.is_empty() {
                "localhost".to_owned()
            } else {
                host_name(host)?
            },
            port,
        )
    };
    let port = port
        .map(|port| {
            Some(port)
                .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|port| port.parse().ok())
                .ok_or_else(|| Bad::new("has no port from 0 to 65535 after its colon", hint))
        })
        .transpose()?;
    Ok(Endpoint { host, port })
}

/// A host without a port: a name, an address, an IPv6 address with or without brackets.
pub(super) fn host(text: &str) -> Result<String, Bad> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    match bare.parse::<Ipv6Addr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => host_name(text),
    }
}

fn host_name(text: &str) -> Result<String, Bad> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.is_empty() || text.len() > HOST_MAX || !text.chars().all(is_part) {
        return Err(Bad::new(
            "is no name or address of a host",
            "give a name, an IPv4 address, or an IPv6 address in brackets",
        ));
    }
    Ok(text.to_owned())
}

/// A port.
pub(super) fn port(text: &str) -> Result<u16, Bad> {
    text.trim()
        .parse()
        .map_err(|_error| Bad::new("is no port", "give a number from 0 to 65535"))
}

/// `10.0.0.0/8`, or one address; several between commas.
pub(super) fn networks(text: &str) -> Result<Vec<Network>, Bad> {
    let network = |entry: &str| {
        entry.parse().map_err(|_error| {
            Bad::new(
                "is no network",
                "give an address, or an address with its number of bits: `10.0.0.0/8`, `fd00::/16`",
            )
        })
    };
    let entries = text.split(',').map(str::trim);
    entries.map(network).collect()
}
