// Checks the manual: every relative link and anchor leads somewhere, and the pages have the sections that a manual needs.
// @ts-check

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Sections of the user manual, by page: prerequisites, configuration, commands, limits and the topics of troubleshooting. */
const MANUAL = [
  ['README.md', 'Install'],
  ['README.md', 'Run a command'],
  ['docs/configuration.md', 'Keys'],
  ['docs/names.md', 'Old names'],
  ['docs/limits.md', 'Limits'],
  ['docs/troubleshooting.md', 'Docker is not found'],
  ['docs/troubleshooting.md', 'Permission denied'],
  ['docs/troubleshooting.md', 'An image cannot be pulled'],
  ['docs/troubleshooting.md', 'A sandbox cannot be created or started'],
  ['docs/troubleshooting.md', 'Commands are slow to start'],
  ['docs/troubleshooting.md', 'The network is not available'],
  ['docs/troubleshooting.md', 'Containers are left over'],
  ['docs/troubleshooting.md', 'A limit ends the command'],
];

const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'CHANGELOG.md',
  'packages/cli/README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.md'))
    .map(name => join('docs', name)),
];

/** @param {string} page */
function textOf(page) {
  return readFileSync(join(ROOT, page), 'utf8').replaceAll(/^ *```[\s\S]*?^ *```$/gm, '');
}

/** @param {string} page */
function headingsOf(page) {
  return [...textOf(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) => heading.trim());
}

/**
 * The anchors of a page, as GitHub makes them from headings: a second heading of the same text gets a number.
 *
 * @param {string} page
 */
function anchorsOf(page) {
  const slugs = headingsOf(page).map(heading =>
    heading
      .toLowerCase()
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
  return new Set(
    slugs.map((slug, index) => {
      const before = slugs.slice(0, index).filter(one => one === slug).length;
      return before === 0 ? slug : `${slug}-${before}`;
    }),
  );
}

/** @param {string} page */
function linksOf(page) {
  const text = textOf(page).replaceAll(/`[^`\n]*`/g, code => code.replaceAll('](', ''));
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link).filter(link => !/^[a-z]+:/.test(link));
}

/**
 * @param {string} page
 * @param {string} link
 */
function faultOf(page, link) {
  const [path = '', anchor] = link.split('#');
  const target = path === '' ? page : normalize(join(dirname(page), path));
  if (!existsSync(join(ROOT, target))) return `${page} links to ${link}: there is no file ${target}`;
  if (anchor === undefined || !target.endsWith('.md') || anchorsOf(target).has(anchor)) return null;
  return `${page} links to ${link}: ${target} has no heading with that anchor`;
}

const links = PAGES.flatMap(page => linksOf(page).map(link => ({ page, link })));
const complaints = [
  ...links.map(({ page, link }) => faultOf(page, link)),
  ...MANUAL.map(([page = '', heading = '']) =>
    headingsOf(page).includes(heading) ? null : `${page} lacks the section “${heading}”`,
  ),
].filter(complaint => complaint !== null);
if (links.length === 0) complaints.push('no page has a link: the pattern that finds them is wrong');
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
console.log(`links: ${links.length} on ${PAGES.length} pages, ${complaints.length} problems`);
