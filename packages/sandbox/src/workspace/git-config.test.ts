// Paths in a repository’s configuration, read as git reads it.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseGitConfig, pathsNamedBy } from './git-directory.ts';

const TEXTS = [
  '[core]\n\thooksPath = tools/hooks\n',
  '[CORE] HooksPath=a/b ; comment\n[alias]\n\tx = "!./run me" # more\n',
  '\uFEFF[core]\r\n\tfsmonitor = "x \\"y\\" \\\\z"  tail  \r\n',
  '[include]\n path = ../in\\\nside\n[includeIf "gitdir:~/a\\"b/"]\n\tpath = other\n',
  '[filter.LFS]\n\tclean = tools/clean.sh %f\n\trequired\n[filter "Big Case"]\n process = a;b\n',
  '# [core]\n; hooksPath = no\n[core]\n\n\n  attributesFile   =   spaced   value   \n',
  '[core]\n\tempty =\n\tbare\n\tafter = "  kept  "x\n',
];

it('reads sections, subsections, quotes, escapes, comments and continued lines as git does', () => {
  const directory = mkdtempSync(join(tmpdir(), 'acode-git-config-'));
  try {
    for (const text of TEXTS) {
      const file = join(directory, 'config');
      writeFileSync(file, text);
      const listed = execFileSync('git', ['config', '--file', file, '--null', '--list'], { encoding: 'utf8' });
      const ours = parseGitConfig(text).map(({ section, subsection, key, value }) => {
        const name = [section, ...(subsection === null ? [] : [subsection]), key].join('.');
        return [name, value];
      });
      const gits = listed
        .split('\0')
        .filter(Boolean)
        .map(entry => [entry.split('\n')[0] ?? '', entry.includes('\n') ? entry.slice(entry.indexOf('\n') + 1) : '']);
      expect([text, ours]).toEqual([text, gits]);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

it('reads on after what git would refuse, and does not take forever over what is no configuration', () => {
  const values = parseGitConfig('???\n[core\nx = 1\n]]\n[core]\n= 3\nhooksPath = h\n"\n');
  expect(values).toContainEqual({ section: 'core', subsection: null, key: 'hookspath', value: 'h' });
  expect(parseGitConfig('['.repeat(200_000))).toEqual([]);
  expect(parseGitConfig(`[a "${'\\"'.repeat(100_000)}`)).toEqual([]);
  expect(parseGitConfig('[a]\nb = "'.concat('\\'.repeat(200_001)))).toHaveLength(1);
  // Minutes and more, where each space may belong to either side of a missing subsection.
  expect(parseGitConfig(`[a${' '.repeat(250_000)}x`)).toEqual([]);
  expect(parseGitConfig(`[${'a'.repeat(125_000)}${' '.repeat(125_000)}"b" x`)).toEqual([]);
});

it.each([
  ['[core]\nhooksPath = h', ['hooks h']],
  ['[core]\nattributesFile = a', ['attributes a']],
  ['[include]\npath = i\n[includeIf "x"]\npath = j', ['include i', 'include j']],
  ['[core]\nfsmonitor = tools/watch', ['command tools/watch']],
  [
    '[core]\nsshCommand = sh -c \'exec ./ssh.sh "$@"\'',
    ['command sh', 'command exec', 'command ./ssh.sh', 'command @'],
  ],
  ['[filter "x"]\nclean = python3 f.py %f', ['command python3', 'command f.py', 'command %f']],
  ['[diff "x"]\ntextconv = t/c\n[merge "y"]\ndriver = m/d %O', ['command t/c', 'command m/d', 'command %O']],
  ['[alias]\nx = !./a.sh && b', ['command ./a.sh', 'command b']],
  ['[credential "https://e"]\nhelper = !./c', ['command ./c']],
  ['[gpg "ssh"]\nprogram = g/p', ['command g/p']],
  ['[remote "o"]\nurl = ext::./r.sh x', ['command ./r.sh', 'command x']],
  ['[user]\nname = ./no\n[branch "m"]\nremote = o', []],
  [
    '[tar "x"]\ncommand = t/x\n[lfs "customtransfer.y"]\npath = l/y\n[hook "z"]\ncommand = h/z',
    ['command t/x', 'command l/y', 'command h/z'],
  ],
  // Names that every JavaScript object has.
  ['[constructor]\nx = a\n[toString]\nname = b\n[valueOf "y"]\nlength = c\n[core]\nconstructor = d', []],
])('%j names %j', (text, named) => {
  expect(pathsNamedBy(parseGitConfig(text)).map(({ as, path }) => `${as} ${path}`)).toEqual(named);
});
