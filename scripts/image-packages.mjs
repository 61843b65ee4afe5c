// Writes what is in an image as an SPDX document, from the list that Debian’s package manager keeps of what it installed.
// @ts-check

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** @typedef {{ name: string, version: string, architecture: string, source: string, homepage: string | null }} Package */

/**
 * The installed packages of a dpkg status file, by name.
 *
 * @param {string} status
 * @returns {Package[]}
 */
function packagesOf(status) {
  return status
    .split(/\n\n+/)
    .map(fieldsOf)
    .filter(fields => fields.has('Package') && (fields.get('Status') ?? 'install ok installed').endsWith(' installed'))
    .map(fields => ({
      name: fields.get('Package') ?? '',
      version: fields.get('Version') ?? '',
      architecture: fields.get('Architecture') ?? 'all',
      source: (fields.get('Source') ?? fields.get('Package') ?? '').split(' ')[0] ?? '',
      homepage: fields.get('Homepage') ?? null,
    }))
    .sort((one, other) => (one.name < other.name ? -1 : 1));
}

/**
 * @param {string} paragraph
 * @returns {Map<string, string>}
 */
function fieldsOf(paragraph) {
  return new Map(
    paragraph.split('\n').flatMap(line => {
      const [, name, value] = /^([A-Za-z-]+): (.*)$/.exec(line) ?? [];
      return name === undefined || value === undefined ? [] : [[name, value]];
    }),
  );
}

/**
 * @param {string} image
 * @param {readonly Package[]} packages
 * @param {string} created
 */
function documentOf(image, packages, created) {
  const digest = createHash('sha256').update(JSON.stringify(packages)).digest('hex');
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name: `acode-sandbox-${image}`,
    // The same list has the same name, so that two builds of the same packages are the same document.
    documentNamespace: `urn:acode:image:${image}:${digest}`,
    creationInfo: { created, creators: ['Tool: acode-image-packages'] },
    packages: packages.map(({ name, version, architecture, source, homepage }) => ({
      SPDXID: `SPDXRef-${`${name}-${architecture}`.replaceAll(/[^A-Za-z0-9.-]/g, '-')}`,
      name,
      versionInfo: version,
      supplier: 'Organization: Debian',
      downloadLocation: 'NOASSERTION',
      filesAnalyzed: false,
      licenseConcluded: 'NOASSERTION',
      licenseDeclared: 'NOASSERTION',
      copyrightText: 'NOASSERTION',
      ...(homepage === null ? {} : { homepage }),
      externalRefs: [
        {
          referenceCategory: 'PACKAGE-MANAGER',
          referenceType: 'purl',
          referenceLocator: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}&upstream=${encodeURIComponent(source)}`,
        },
      ],
    })),
    relationships: packages.map(({ name, architecture }) => ({
      spdxElementId: 'SPDXRef-DOCUMENT',
      relationshipType: 'DESCRIBES',
      relatedSpdxElement: `SPDXRef-${`${name}-${architecture}`.replaceAll(/[^A-Za-z0-9.-]/g, '-')}`,
    })),
  };
}

const [image, file, created] = process.argv.slice(2);
if (image === undefined || file === undefined || created === undefined) {
  console.error('usage: image-packages.mjs IMAGE DPKG-STATUS CREATED');
  process.exit(2);
}
const packages = packagesOf(readFileSync(file, 'utf8'));
if (packages.length === 0) {
  console.error(`${file} lists no package`);
  process.exit(1);
}
console.log(JSON.stringify(documentOf(image, packages, created), null, 2));
