// What is said about sandboxes that stay is read in one way, or refused.

import { describe, expect, it } from 'vitest';
import { call } from '../test-process.ts';
import { copying } from './copying.ts';
import { duration } from './duration.ts';
import { forwarding } from './forwarding.ts';

describe('a time span', () => {
  it.each([
    ['90s', 90_000],
    ['30m', 1_800_000],
    ['2h', 7_200_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['1d', 86_400_000],
  ])('%s is %i ms', (text, milliseconds) => {
    expect(duration(text)).toBe(milliseconds);
  });

  it.each(['', '30', 'h', '0h', '-1h', '1h 30m', '1w', '400d', '1e3s', '0.1s'])('%j is refused', text => {
    expect(() => duration(text)).toThrow(/with its unit/);
  });
});

describe('a forwarding', () => {
  it('is a port, or two', () => {
    expect(forwarding('3000')).toEqual({ containerPort: 3000 });
    expect(forwarding('8080:3000')).toEqual({ containerPort: 3000, hostPort: 8080 });
  });

  it.each(['', '0', '70000', '1:2:3', 'a', '0.0.0.0:80:80', '80/udp'])('%j is refused', text => {
    expect(() => forwarding(text)).toThrow(/from 1 to 65535/);
  });
});

describe('a copy', () => {
  it.each([
    ['./a', 'a1b2c3d4:b', { way: 'in', sandbox: 'a1b2c3d4', inside: 'b', outside: './a' }],
    ['a1b2c3d4:/x/y', 'z', { way: 'out', sandbox: 'a1b2c3d4', inside: '/x/y', outside: 'z' }],
    ['a1b2c3d4:', '.', { way: 'out', sandbox: 'a1b2c3d4', inside: '.', outside: '.' }],
    ['./odd:name', 'a1b2c3d4:b:c', { way: 'in', sandbox: 'a1b2c3d4', inside: 'b:c', outside: './odd:name' }],
  ])('%s to %s goes one way', (source, target, expected) => {
    expect(copying(source, target)).toEqual(expected);
  });

  it.each([
    ['a', 'b'],
    ['a1b2c3d4:a', 'b1b2c3d4:b'],
    ['/a:b', './c:d'],
  ])('%s to %s is refused', (source, target) => {
    expect(() => copying(source, target)).toThrow(/side/);
  });
});

describe('a name that is too short', () => {
  it('is told so', () => {
    expect(() => copying('a', 'abc:foo')).toThrow('abc is too short for a sandbox.');
    expect(() => copying('abc:foo', 'a')).toThrow('abc is too short for a sandbox.');
  });
});

describe('what cannot be', () => {
  it.each<[string[], RegExp]>([
    [['sandbox', 'exec', '--in', 'a1b2', '--memory', '1g', '--', 'ls'], /--memory counts when a sandbox is created/],
    [['sandbox', 'exec', '--in', 'a1b2', '--no-caches', '--', 'ls'], /--no-caches counts when/],
    [['sandbox', 'exec', '--in', 'a1b2', '--risk', 'high', '--', 'ls'], /--risk counts when/],
    [['sandbox', 'exec', '--in', 'a1b2'], /no command to run/],
    [['sandbox', 'shell', 'a1b2'], /needs a terminal[^]*exec --in a1b2/],
    [['sandbox', 'shell'], /needs a terminal[^]*acode run/],
    [['sandbox', 'cp', 'a', 'b'], /Neither side/],
    [['sandbox', 'cp', './no-such-file', 'a1b2c3d4:b'], /There is no \.\/no-such-file/],
    [['sandbox', 'keep', 'a1b2'], /--for/],
    [['sandbox', 'keep', 'a1b2', '--for', '2'], /with its unit/],
    [['sandbox', 'kill'], /sandbox/],
    [['sandbox', 'create', '--env', 'A=1'], /--env/],
    [['sandbox', 'kill', 'a1b2', '--', 'x'], /takes no command/],
  ])('%j is a mistake of the call', async (argv, said) => {
    const { status, stderr, stdout } = await call(argv);
    expect(stderr).toMatch(said);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  });

  it('a shell with --json is one', async () => {
    const { status, stdout } = await call(['--json', 'sandbox', 'shell', 'a1b2']);
    expect(status).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 'acode.error/1',
      message: expect.stringContaining('no result to print'),
    });
  });
});
