// The commands at the top of docs/agents.md, typed by a person at a real terminal: from nothing to a reviewed apply. And every answer to
// the question at the end of a session.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withoutNames } from '../egress/servers.ts';
import { withoutEngines } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { figure } from '../support/waiting.ts';
import { Pane } from '../sessions/pane.ts';
import { AgentPlace, KEY, agents } from './place.ts';
import { report } from './results.ts';

const PAGE = readFileSync(new URL('../../docs/agents.md', import.meta.url), 'utf8');
const QUESTION = /\[a\]pply, apply to a \[b\]ranch, \[k\]eep, \[d\]iscard\? $|\[d\]iscard\?$/;
const COMMANDS = 3;
const MAX_MS = 60_000;

/** The first commands of the page for an agent: those of Claude Code, with the names that the page has for the others. */
function commandsFor(name: string): readonly string[] {
  const [, block = ''] = /```console\n([\s\S]*?)```/.exec(PAGE) ?? [];
  const variables = new Map([...PAGE.matchAll(/`(\w+)`\s+\(`(\w+_API_KEY)`\)/g)].map(([, agent, one]) => [agent, one]));
  return block
    .split('\n')
    .filter(line => line.startsWith('$ '))
    .map(line =>
      line
        .slice(2)
        .replace('ANTHROPIC_API_KEY', variables.get(name) ?? 'ANTHROPIC_API_KEY')
        .replaceAll('claude', name)
        .replace('…', KEY),
    );
}

/** How the screen of an agent is ready, the keys for what it asks before that, and how a person leaves it. */
const SCREENS: Readonly<Record<string, { ready: RegExp; before?: readonly [RegExp, string][]; leave: string }>> = {
  claude: { ready: /bypass permissions on/, leave: '/exit' },
  codex: { ready: /Ask Codex|for shortcuts/, before: [[/Use existing model/, '2']], leave: '/quit' },
  gemini: { ready: /Type your message/, leave: '/quit' },
  opencode: { ready: /Ask anything|tab agents|ctrl\+p/i, leave: '/exit' },
};

describe.skipIf(withoutEngines || withoutNames).each(agents)('%s at a terminal', name => {
  const [exported = '', run = '', apply = ''] = commandsFor(name);
  const variable = /export (\w+)=/.exec(exported)?.[1] ?? '';
  let place: AgentPlace;
  let pane: Pane;
  beforeAll(async () => {
    // The long test suite begins with nothing: the program comes from npm.
    place = await AgentPlace.open(name, { variable, withProgram: !everything });
    pane = await Pane.open(place.bench.workspace, place.typed);
  });
  afterAll(async () => {
    await pane[Symbol.asyncDispose]();
    await place[Symbol.asyncDispose]();
  });

  const git = (...argv: string[]): string =>
    execFileSync('git', argv, { cwd: place.bench.workspace, encoding: 'utf8' }).trim();
  const text = (): string => readFileSync(join(place.bench.workspace, 'a.txt'), 'utf8');
  const clear = async (): Promise<void> => {
    await pane.line('clear');
    await pane.until(/^\S*host>$/);
  };
  /** Answers each question that is shown, in turn, and gives the screen after the last one. */
  const answer = async (...answers: (readonly [RegExp, string])[]): Promise<string> => {
    for (const [question, typed] of answers) {
      await pane.until(question);
      await pane.line(typed);
    }
    return pane.until(/host>$/);
  };

  it('is asked with the first three commands of the page, and its reviewed change is applied', async () => {
    expect(commandsFor(name)).toHaveLength(COMMANDS);
    place.script.all = ['sed -i s/one/two/ a.txt && sh test.sh', 'git commit -qam work && git log -1 --format=%an'];
    const from = performance.now();
    await pane.line(exported);
    await clear();
    await pane.line(run);
    expect(await answer([QUESTION, 'k'])).toMatch(new RegExp(`kept in the fork ${name}`));
    expect(text()).toBe('one\n');
    await clear();
    await pane.line(apply);
    const shown = await answer([/Apply 1 change to .*\? \[y\/N\]/s, 'y']);
    const ms = performance.now() - from;
    // Its commit stays in the fork.
    expect(shown).toMatch(/changes in \.git stay in the fork/);
    expect(shown).toMatch(/Applied 1 change/);
    expect(text()).toBe('two\n');
    expect([...place.host.keys]).toEqual([KEY]);
    const fetched = everything ? ', its program fetched from npm' : '';
    figure(`${name}: from nothing to a reviewed apply in ${COMMANDS} commands${fetched}`, ms, MAX_MS);
    report(
      place.title,
      'from nothing to a reviewed apply',
      `${(ms / 1000).toFixed(1)} s, ${COMMANDS} commands${fetched}`,
      'costs',
    );
  });

  it('works on its own screen, and its commits become the branch that the person names', async () => {
    const { ready, before = [], leave } = SCREENS[name] ?? { ready: /never/, leave: '' };
    place.script.all = [...place.script.all, 'echo three >> a.txt && git commit -qam screen && git log -1 --format=%s'];
    await clear();
    await pane.line(`acode agent ${name} --fresh`);
    for (const [seen, key] of before) {
      await pane.until(seen);
      await pane.press(key, 'Enter');
    }
    await pane.until(ready);
    expect(await pane.fact('pane_dead')).toBe('0');
    // A program that has drawn its screen may not read what is typed yet.
    await new Promise(resolve => void setTimeout(resolve, 3000));
    // Some programs take an Enter that comes with the words for a line break in them.
    await pane.type('Do the work.');
    await new Promise(resolve => void setTimeout(resolve, 1000));
    await pane.press('Enter');
    await pane.until(/All is done/);
    await pane.type(leave);
    await new Promise(resolve => void setTimeout(resolve, 1000));
    await pane.press('Enter');
    const shown = await answer(
      [QUESTION, 'b'],
      [/name of the branch \[.*\]:$/s, 'from-screen'],
      [/Add branch from-screen.*\? \[y\/N\]/s, 'y'],
    );
    expect(shown).toMatch(/Branch from-screen is at/);
    expect(git('log', '-1', '--format=%s by %an', 'from-screen')).toBe('screen by Ada Test');
    expect(text()).toBe('two\n');
  });
});

describe.skipIf(withoutEngines || withoutNames)('the question at the end of a session', () => {
  it('applies, asks about risk, discards and keeps as the person says; what is kept is offered again', async () => {
    await using place = await AgentPlace.open('claude');
    await using pane = await Pane.open(place.bench.workspace, place.typed);
    const file = join(place.bench.workspace, 'a.txt');
    const session = async (line: string): Promise<void> => {
      await pane.line('clear');
      await pane.until(/^\S*host>$/);
      // Acode’s question is the same for every program of the image.
      await pane.line(`acode agent sh -p '${line}' -- -c`);
      await pane.until(QUESTION);
    };
    await session('echo two > a.txt');
    await pane.line('a');
    await pane.until(/Apply 1 change to .*\? \[y\/N\]/s);
    await pane.line('y');
    await pane.until(/Applied 1 change[\s\S]*host>$/);
    expect(readFileSync(file, 'utf8')).toBe('two\n');
    await session('echo three > a.txt');
    await pane.line('d');
    await pane.until(/Removed fork sh [\s\S]*host>$/);
    await session('echo four > a.txt');
    // An empty line, and whatever is no answer, keeps.
    await pane.line('');
    await pane.until(/kept in the fork sh:[\s\S]*host>$/);
    expect(readFileSync(file, 'utf8')).toBe('two\n');
    await pane.line('clear');
    await pane.line('acode fork list');
    expect(await pane.until(/\bsh\b[\s\S]*host>$/)).not.toContain('sh-2');
    writeFileSync(file, 'two\n');
  });
});
