//! Folders of traffic in object stores: S3 and what speaks it, Google Cloud Storage, Azure.
//!
//! The files of a folder are objects of the same names under a prefix of their own. Beside them lies
//! [`MARKER`], which is put first: it claims the prefix for one folder and says, once all files are there,
//! how many they are. [`upload`] moves the files of a capture there while it runs, [`push()`] those that it
//! has left behind, and [`fetch()`] brings a folder back.
//!
//! Accounts come from the environment, as with the vendors' own tools. Calls block: they are for threads of
//! their own. What speaks to a store is there with the feature `object-stores` only.

#[cfg(not(feature = "object-stores"))]
#[path = "absent.rs"]
mod client;
#[cfg(feature = "object-stores")]
mod client;
mod fetch;
#[cfg(feature = "object-stores")]
mod http;
mod push;
#[cfg(test)]
mod tests;
pub(crate) mod upload;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::file::FileError;

pub use self::fetch::{Fetched, fetch};
pub use self::push::{Pushed, push};
pub use self::upload::UploadStatus;

use self::client::Client;

/// The object that claims a prefix.
pub const MARKER: &str = "traffic.json";
/// The longest marker.
const MARKER_MAX: u64 = 64 << 10;

/// A prefix in an object store: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    vendor: Vendor,
    bucket: String,
    prefix: String,
}

/// Whose protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Amazon,
    Google,
    Azure,
}

impl Vendor {
    const ALL: [Self; 3] = [Self::Amazon, Self::Google, Self::Azure];

    fn scheme(self) -> &'static str {
        match self {
            Self::Amazon => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }
}

impl Location {
    /// Whether it is meant as one, rather than as a folder.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.contains("://")
    }
}

impl FromStr for Location {
    type Err = ObjectsError;

    fn from_str(text: &str) -> Result<Self, ObjectsError> {
        let refused = |why: &'static str| ObjectsError::Location(text.to_owned(), why);
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| refused("no s3://, gs:// or az:// is in front of it"))?;
        let vendor = Vendor::ALL.into_iter().find(|vendor| vendor.scheme() == scheme);
        let vendor = vendor.ok_or_else(|| refused("known are s3://, gs:// and az://"))?;
        let (bucket, prefix) = rest
            .split_once('/')
            .ok_or_else(|| refused("behind the bucket a prefix is wanted, which each capture has its own"))?;
        let is_plain = |part: &str| {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.=+".contains(&byte);
            !matches!(part, "" | "." | "..") && part.bytes().all(known)
        };
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !is_plain(bucket) || !prefix.split('/').all(is_plain) {
            return Err(refused(
                "a bucket and a prefix have letters, digits and -_.=+, parts of a prefix a slash between them",
            ));
        }
        Ok(Self {
            vendor,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}/{}", self.vendor.scheme(), self.bucket, self.prefix)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// A URL that names no object store that is known.
    #[error("{0}: {1}")]
    Location(String, &'static str),
    #[error("this program was built without object stores (the feature object-stores)")]
    NotBuilt,
    /// What the store says, or why it is not reached.
    #[error("{object}: {words}")]
    Store { object: String, words: String },
    #[error("{object}: {words}")]
    Refused { object: String, words: String },
    #[error("{0}: another folder of traffic is there; name another prefix")]
    Taken(Location),
    #[error("{0}: no files of captured traffic are there")]
    Empty(Location),
    #[error("{object}: {why}")]
    Wrong { object: String, why: String },
    #[error(transparent)]
    File(#[from] FileError),
}

/// What [`MARKER`] says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The id that the files of the folder have, in hexadecimal.
    pub(crate) folder: String,
    /// How much a whole folder has; `None` while files may still be added.
    pub(crate) whole: Option<Whole>,
    /// Where files lie that are not here yet.
    pub(crate) machine: String,
    pub(crate) spool: PathBuf,
}

/// All files of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    pub(crate) files: u32,
    pub(crate) bytes: u64,
}

impl Marker {
    /// Of a folder of this id that lies here.
    pub(crate) fn new(id: &[u8], spool: &Path) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            folder: hexadecimal(id),
            whole: None,
            machine,
            spool: spool.to_owned(),
        }
    }
}

/// A prefix of a store, which can be reached.
pub(crate) struct Objects {
    location: Location,
    client: Client,
}

impl Objects {
    /// Nothing is sent yet.
    pub(crate) fn open(location: &Location) -> Result<Self, ObjectsError> {
        Ok(Self {
            client: Client::open(location)?,
            location: location.clone(),
        })
    }

    /// Nothing that is asked from now on takes longer.
    pub(crate) fn limit(&self, limit: Duration) {
        self.client.limit(limit);
    }

    /// Claims the prefix for one folder. A prefix that this folder has already claimed is left as it is: the
    /// answer to the first claim may have been lost.
    pub(crate) fn claim(&self, marker: &Marker) -> Result<(), ObjectsError> {
        // Not all stores know the condition under which it is put below.
        let found = match self.marker() {
            Ok(found) => found,
            // An account that may write need not be allowed to read. The write below refuses one that may do
            // neither.
            Err(ObjectsError::Refused { .. }) => None,
            Err(other) => return Err(other),
        };
        match found {
            Some(found) if found.folder == marker.folder => Ok(()),
            Some(_) => Err(ObjectsError::Taken(self.location.clone())),
            None => match self.client.put_new(MARKER, marker_bytes(marker)?)? {
                true => Ok(()),
                false => Err(ObjectsError::Taken(self.location.clone())),
            },
        }
    }

    /// Says how many files there are.
    pub(crate) fn complete(&self, marker: &Marker) -> Result<(), ObjectsError> {
        self.client.put(MARKER, marker_bytes(marker)?)
    }

    fn marker(&self) -> Result<Option<Marker>, ObjectsError> {
        let Some(bytes) = self.client.get_small(MARKER, MARKER_MAX)? else {
            return Ok(None);
        };
        let marker = serde_json::from_slice(&bytes);
        marker.map(Some).map_err(|error| ObjectsError::Wrong {
            object: self.object(MARKER),
            why: error.to_string(),
        })
    }

    /// An object's full name, for people.
    fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }
}

/// As ids are told.
fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn marker_bytes(marker: &Marker) -> Result<Vec<u8>, ObjectsError> {
    serde_json::to_vec(marker).map_err(|error| ObjectsError::Wrong {
        object: MARKER.to_owned(),
        why: error.to_string(),
    })
}
