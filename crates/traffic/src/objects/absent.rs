//! In place of [`client`](super::client) in a program without object stores: nobody has one of these.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::{Location, ObjectsError};

/// There is none.
pub(super) enum Client {}

impl Client {
    pub(super) fn open(_: &Location) -> Result<Self, ObjectsError> {
        Err(ObjectsError::NotBuilt)
    }

    pub(super) fn limit(&self, _: Duration) {
        match *self {}
    }

    pub(super) fn list(&self) -> Result<Vec<(String, u64)>, ObjectsError> {
        match *self {}
    }

    pub(super) fn put(&self, _: &str, _: Vec<u8>) -> Result<(), ObjectsError> {
        match *self {}
    }

    pub(super) fn put_new(&self, _: &str, _: Vec<u8>) -> Result<bool, ObjectsError> {
        match *self {}
    }

    pub(super) fn get_small(&self, _: &str, _: u64) -> Result<Option<Vec<u8>>, ObjectsError> {
        match *self {}
    }

    pub(super) fn put_file(&self, _: &str, _: &Path) -> Result<u64, ObjectsError> {
        match *self {}
    }

    pub(super) fn get_range(&self, _: &str, _: Range<u64>) -> Result<Vec<u8>, ObjectsError> {
        match *self {}
    }
}
