//! Accelerators and their places on the PCI bus.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use super::NumaError;
use super::sysfs::read;

/// Most devices on a bus that are looked at.
const DEVICES_MAX: usize = 4096;
/// NVIDIA's: VGA and 3D controllers. AMD's: display controllers without a screen, and accelerators.
const ACCELERATORS: &[(&str, &[&str])] = &[
    ("0x10de", &["0x0300", "0x0302"]),
    ("0x1002", &["0x0380", "0x1200"]),
];

/// Where a device is: function 0 of this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// Its domain.
    pub domain: u32,
    /// Its bus.
    pub bus: u8,
    /// Its device number.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.0",
            self.domain, self.bus, self.device
        )
    }
}

/// A text that is no PCI address of a function 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no PCI address like 0000:3b:00.0")]
pub struct InvalidPciAddress;

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = text.strip_suffix(".0").ok_or(InvalidPciAddress)?;
        let mut parts = place.split(':');
        let mut next = || parts.next().ok_or(InvalidPciAddress);
        let number = |text: &str| u32::from_str_radix(text, 16).map_err(|_error| InvalidPciAddress);
        let byte = |text: &str| u8::from_str_radix(text, 16).map_err(|_error| InvalidPciAddress);
        let address = Self {
            domain: number(next()?)?,
            bus: byte(next()?)?,
            device: byte(next()?)?,
        };
        parts
            .next()
            .is_none()
            .then_some(address)
            .ok_or(InvalidPciAddress)
    }
}

/// The accelerators of this machine in the order of their places, which is that of the drivers on a
/// machine whose devices are alike. This reads the sysfs tree; what cannot be read is left out.
pub fn accelerators(root: &Path) -> Vec<PciAddress> {
    let Ok(entries) = fs::read_dir(root.join("bus/pci/devices")) else {
        return Vec::new();
    };
    let mut found: Vec<PciAddress> = entries
        .take(DEVICES_MAX)
        .filter_map(Result::ok)
        .filter(|entry| is_accelerator(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

fn is_accelerator(device: &Path) -> bool {
    let field = |name| read(&device.join(name)).unwrap_or_default();
    let (vendor, class) = (field("vendor"), field("class"));
    ACCELERATORS.iter().any(|(known, classes)| {
        *known == vendor.trim() && classes.iter().any(|known| class.starts_with(known))
    })
}

/// Those that workers see, from a list of indices such as `CUDA_VISIBLE_DEVICES`; all where there
/// is no list. As in CUDA, a number that is none ends the list.
pub fn visible(devices: &[PciAddress], list: Option<&str>) -> Result<Vec<PciAddress>, NumaError> {
    let Some(list) = list else {
        return Ok(devices.to_vec());
    };
    let mut seen = Vec::new();
    for entry in list
        .split(',')
        .map(str::trim)
        .take_while(|entry| !entry.is_empty())
    {
        let Ok(index) = entry.parse::<i64>() else {
            return Err(NumaError::UnknownDevice {
                entry: entry
                    .chars()
                    .take(60)
                    .map(herd_core::text::visible)
                    .collect(),
            });
        };
        let Some(device) = usize::try_from(index)
            .ok()
            .and_then(|index| devices.get(index))
        else {
            break;
        };
        seen.push(*device);
    }
    Ok(seen)
}
