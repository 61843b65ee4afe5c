// Builds the forwarder of allow-lists from its one C file, for each architecture whose compiler is installed.
//
//   node scripts/build-forwarder.mjs           builds, and writes the binaries and their hashes into isolation/egress.ts
//   node scripts/build-forwarder.mjs --check   builds into memory and compares byte for byte with what is committed
//
// It needs Debian's packages of the versions below (gcc, musl-dev); another compiler makes other bytes. The C library of arm64 is
// a package of that architecture: ACODE_MUSL_ARM64 names the directory in which it was unpacked. `--check` says what it skipped and
// why, and fails if it skipped anything although ACODE_FORWARDER_REQUIRED is set.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const directory = join(root, 'packages', 'sandbox', 'forwarder');
const HASHES = join(root, 'packages', 'sandbox', 'src', 'isolation', 'egress.ts');

const unpacked = process.env.ACODE_MUSL_ARM64 ?? '/';

// The committed binaries were made by these; `musl` is where the C library is, with its headers.
const TARGETS = [
  {
    name: 'forwarder-x86_64',
    compiler: 'x86_64-linux-gnu-gcc-12',
    version: '12.2.0',
    musl: ['/usr/lib/x86_64-linux-musl', '/usr/include/x86_64-linux-musl'],
  },
  {
    name: 'forwarder-aarch64',
    compiler: 'aarch64-linux-gnu-gcc-12',
    version: '12.2.0',
    musl: ['/usr/lib/aarch64-linux-musl', '/usr/include/aarch64-linux-musl'].map(path => join(unpacked, path)),
  },
];

const FLAGS = [
  '-std=c11 -Os -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror',
  '-fPIE -static-pie -fstack-protector-strong -fno-ident -nostdinc -nostdlib -s',
  '-Wl,-z,relro,-z,now,-z,noexecstack,--build-id=none',
].flatMap(line => line.split(' '));

/** Why a target cannot be built on this machine; null if it can. */
function obstacle({ compiler, version, musl: [library] }) {
  let found;
  try {
    found = execFileSync(compiler, ['-dumpfullversion'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return `${compiler} is not installed`;
  }
  if (found !== version) return `${compiler} is ${found}, and the binary was made by ${version}`;
  return existsSync(join(library, 'libc.a')) ? null : `${library} is not there (Debian’s musl-dev)`;
}

function build({ compiler, musl: [library, headers] }) {
  const temporary = mkdtempSync(join(tmpdir(), 'acode-forwarder-'));
  const ask = word => execFileSync(compiler, [word], { encoding: 'utf8' }).trim();
  try {
    const out = join(temporary, 'forwarder');
    execFileSync(
      compiler,
      FLAGS.concat(
        ['-isystem', headers, '-isystem', ask('-print-file-name=include')],
        [join(library, 'rcrt1.o'), join(library, 'crti.o'), 'forwarder.c', join(library, 'libc.a')],
        [ask('-print-libgcc-file-name'), join(library, 'crtn.o'), '-o', out],
      ),
      // A relative name of the source, and no variable of the builder’s.
      { cwd: directory, env: { PATH: process.env.PATH, LC_ALL: 'C', SOURCE_DATE_EPOCH: '0' }, stdio: 'inherit' },
    );
    return readFileSync(out);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

const sha256 = bytes => createHash('sha256').update(bytes).digest('hex');
const check = process.argv.includes('--check');
let source = readFileSync(HASHES, 'utf8');
let differs = false;
let skipped = 0;
for (const target of TARGETS) {
  const { name } = target;
  const path = join(directory, name);
  const committed = existsSync(path) ? readFileSync(path) : null;
  const entry = new RegExp(`(file: '${name}', sha256: ')([0-9a-f]{64})'`);
  if (check && !committed) {
    console.log(`${name}: not committed`);
    continue;
  }
  if (check && entry.exec(source)?.[2] !== sha256(committed)) {
    console.error(`${name}: its hash is not the one in isolation/egress.ts`);
    differs = true;
  }
  const reason = obstacle(target);
  if (reason !== null) {
    console.log(`${name}: ${check ? 'NOT compared with its source' : 'skipped'}: ${reason}`);
    skipped += 1;
    continue;
  }
  const bytes = build(target);
  if (!check) {
    writeFileSync(path, bytes, { mode: 0o755 });
    source = source.replace(entry, `$1${sha256(bytes)}'`);
    console.log(`${name}: ${bytes.length} bytes, ${sha256(bytes)}`);
  } else if (committed.equals(bytes)) console.log(`${name}: the same, byte for byte`);
  else {
    console.error(`${name}: differs from what its source gives. Run npm run build:forwarder and commit it.`);
    differs = true;
  }
}
if (!check) writeFileSync(HASHES, source);
if (check && skipped > 0 && process.env.ACODE_FORWARDER_REQUIRED) {
  console.error("Not every binary was compared: install Debian's gcc, its cross compiler and musl-dev.");
  differs = true;
}
process.exitCode = differs ? 1 : 0;
