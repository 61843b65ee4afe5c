// The one template: what is in it, and how images are named.

import { expect, it } from 'vitest';
import { RESERVED } from '../../lifecycle/labels.ts';
import { parseReference } from '../../policy/images.ts';
import { projectReference } from '../../policy/pull.ts';
import { CHECKSUM_LABEL, INPUTS_LABEL, KIND_LABEL, templateFor } from './project-base.ts';

const ID = `sha256:${'a'.repeat(64)}`;

it('names files, a variable and a user, and nothing that is executed', () => {
  expect(templateFor(ID)).toBe(`FROM ${ID}\nCOPY project/ /project/\nENV ACODE_PROJECT=/project\nUSER 1000:1000\n`);
});

it.each(['node:20', `${ID}\nRUN id`, 'sha256:abc', ''])('refuses %j in place of an id', base => {
  expect(() => templateFor(base)).toThrow(TypeError);
});

it.each(['/home/me/My App', '/srv/--', '/srv/ünï', '/a/' + 'x'.repeat(200)])('names the image of %s', root => {
  const reference = projectReference(root, 1000);
  expect(parseReference(reference)).toMatchObject({ tag: 'project' });
  expect(reference).toMatch(/^acode-sandbox-(?:[a-z0-9-]+-)?[0-9a-f]{12}:project$/);
  expect(projectReference(`${root}x`, 1000)).not.toBe(reference);
  expect(projectReference(root, 1001)).not.toBe(reference);
});

it('has labels that differ from those of a sandbox', () => {
  for (const label of [CHECKSUM_LABEL, INPUTS_LABEL, KIND_LABEL]) expect(label.startsWith(RESERVED)).toBe(false);
});
