/**
 * File systems by the magic number that statfs(2) gives (linux/magic.h, and the sources of those
 * outside of it).
 */
const names: ReadonlyMap<number, string> = new Map([
  [0xef53, "ext4"],
  [0x58465342, "xfs"],
  [0x9123683e, "btrfs"],
  [0xf2f52010, "f2fs"],
  [0xca451a4e, "bcachefs"],
  [0x2fc12fc1, "zfs"],
  [0x01021994, "tmpfs"],
  [0x858458f6, "ramfs"],
  [0x794c7630, "overlayfs"],
  [0x6969, "nfs"],
  [0xff534d42, "cifs"],
  [0xfe534d42, "smb2"],
  [0x00c36400, "ceph"],
  [0x0bd00bd0, "lustre"],
  [0x47504653, "gpfs"],
  [0x19830326, "beegfs"],
  [0x01021997, "9p"],
  [0x65735546, "fuse"],
  [0x73717368, "squashfs"],
  [0xe0f5e1e2, "erofs"],
  [0x9660, "iso9660"],
  [0x4d44, "vfat"],
  [0x2011bab0, "exfat"],
  [0x7366746e, "ntfs3"],
  [0x9fa0, "proc"],
  [0x62656572, "sysfs"],
]);

/**
 * Name of a file system, or its number in hexadecimal. Some C libraries give numbers above 2^31 as
 * negative ones.
 */
export function fileSystemName(type: number): string {
  const magic = type >>> 0;
  return names.get(magic) ?? `0x${magic.toString(16)}`;
}
