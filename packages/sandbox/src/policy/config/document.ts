// The text of a configuration file as a value, with the place of everything in it. Bounded before it is understood: the file may be an attack.

import { Composer, LineCounter, Lexer, Parser, isMap, isSeq } from 'yaml';
import type { CST, Document as YamlDocument } from 'yaml';
import { AcodeError } from '../../contract/errors.ts';
import { MAX_DEPTH, MAX_BYTES, tooLarge } from './shape.ts';

// Far above any configuration, far below what would keep the process busy: the parser’s own work grows with the square of a map’s keys.
const MAX_LEXEMES = 20_000;
const MAX_ITEMS = 500;
const MAX_ALIASES = 20;

/** A path into a document: keys of maps, indices of lists. */
export type Path = readonly PropertyKey[];

/** A parsed document. */
export interface ConfigDocument {
  readonly value: unknown;
  /** `file:line:column` of the key at a path, or of the nearest thing above it. */
  readonly where: (path: Path) => string;
}

/** Parses YAML 1.2 without tags, directives or a second document. Throws ACODE-SBX-013 with the place of the mistake. */
export function parseDocument(text: string, source: string): ConfigDocument {
  if (text.length > MAX_BYTES) throw invalid(source, tooLarge());
  const lines = new LineCounter();
  const at = (offset: number): string => {
    const { line, col } = lines.linePos(offset);
    return line === 0 ? source : `${source}:${line}:${col}`;
  };
  const tokens = tokensOf(text, lines, source);
  checkTokens(tokens, source, at);
  const document = composed(tokens, text, source, at);
  const value = plainValue(document, source);
  return { value, where: path => place(document, path, source, at) };
}

function tokensOf(text: string, lines: LineCounter, source: string): CST.Token[] {
  const parser = new Parser(lines.addNewLine);
  const tokens: CST.Token[] = [];
  lines.addNewLine(0);
  let count = 0;
  for (const lexeme of new Lexer().lex(text)) {
    count += 1;
    if (count > MAX_LEXEMES) throw invalid(source, `has more than ${MAX_LEXEMES} parts, which no configuration needs`);
    tokens.push(...parser.next(lexeme));
  }
  tokens.push(...parser.end());
  return tokens;
}

// Checked before composing, which recurses and would run out of stack.
function checkTokens(tokens: readonly CST.Token[], source: string, at: (offset: number) => string): void {
  let aliases = 0;
  const waiting = tokens.map(token => ({ token, depth: 0 }));
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { token, depth } = next;
    const refused = REFUSED[token.type];
    if (refused !== undefined && 'offset' in token) throw invalid(at(token.offset), refused);
    if (token.type === 'alias') aliases += 1;
    refuseAliasKeys(token, at);
    if (aliases > MAX_ALIASES) throw invalid(source, 'uses too many YAML aliases');
    if (depth > MAX_DEPTH)
      throw invalid('offset' in token ? at(token.offset) : source, `is nested more than ${MAX_DEPTH} deep`);
    for (const part of partsOf(token, source))
      waiting.push({ token: part, depth: depth + (isCollection(token) ? 1 : 0) });
  }
}

// A key under another name would not be seen to be there twice.
function refuseAliasKeys(token: CST.Token, at: (offset: number) => string): void {
  if (!('items' in token)) return;
  const key = token.items.find(item => item.key?.type === 'alias')?.key;
  if (key) throw invalid(at(key.offset), 'has a YAML alias as a key');
}

const REFUSED: Readonly<Record<string, string>> = {
  tag: 'has a YAML tag; plain values are all that counts here',
  directive: 'has a YAML directive; plain YAML 1.2 is all that counts here',
};

function isCollection(token: CST.Token): boolean {
  return token.type === 'block-map' || token.type === 'block-seq' || token.type === 'flow-collection';
}

function partsOf(token: CST.Token, source: string): CST.Token[] {
  if (token.type === 'document') return [...token.start, ...(token.value ? [token.value] : [])];
  if (!('items' in token)) return [];
  if (token.items.length > MAX_ITEMS) throw invalid(source, `has a list or map of more than ${MAX_ITEMS} entries`);
  return token.items.flatMap(item => [
    ...item.start,
    ...(item.key ? [item.key] : []),
    ...(item.sep ?? []),
    ...(item.value ? [item.value] : []),
  ]);
}

function composed(
  tokens: readonly CST.Token[],
  text: string,
  source: string,
  at: (offset: number) => string,
): YamlDocument.Parsed {
  const composer = new Composer({ uniqueKeys: true, version: '1.2', schema: 'core', logLevel: 'error' });
  const [document, second] = [...composer.compose(tokens, true, text.length)];
  if (second) throw invalid(source, 'holds more than one YAML document');
  if (!document) throw invalid(source, 'is not valid YAML');
  const syntax = document.errors[0];
  if (!syntax) return document;
  if (syntax.code === 'DUPLICATE_KEY') throw keyTwice(at(syntax.pos[0]), text.slice(syntax.pos[0]));
  throw invalid(at(syntax.pos[0]), `is not valid YAML: ${firstLine(syntax.message)}`);
}

// The commonest mistake of people who take a line on that was off.
function keyTwice(source: string, text: string): AcodeError {
  const [name = 'this key'] = /^[\w.-]{1,60}/.exec(text) ?? [];
  const remedy = `Put everything of ${name} in one place, and remove the other`;
  return new AcodeError('ACODE-SBX-013', {
    source,
    key: '',
    reason: `is not valid YAML: ${name} is there twice`,
    remedy,
  });
}

function plainValue(document: YamlDocument.Parsed, source: string): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (cause) {
    const many = cause instanceof Error && cause.message.includes('Excessive');
    const reason = many ? 'uses too many YAML aliases' : 'is not valid YAML: an alias has no anchor before it';
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason }, { cause });
  }
}

// A key is reported at the key itself, an entry of a list at its value; what is not written out (an alias) at its nearest parent.
function place(document: YamlDocument.Parsed, path: Path, source: string, at: (offset: number) => string): string {
  let node: unknown = document.contents;
  let offset = path.length === 0 ? startOf(node) : undefined;
  for (const step of path) {
    const found = childOf(node, step);
    if (!found) break;
    offset = startOf(found.named) ?? offset;
    node = found.value;
  }
  return offset === undefined ? source : at(offset);
}

function childOf(node: unknown, step: PropertyKey): { named: unknown; value: unknown } | null {
  if (isMap(node)) {
    const pair = node.items.find(item => String(item.key) === String(step));
    return pair ? { named: pair.key, value: pair.value } : null;
  }
  if (!isSeq(node)) return null;
  const entry = node.items[Number(step)];
  return entry === undefined ? null : { named: entry, value: entry };
}

function startOf(node: unknown): number | undefined {
  if (typeof node !== 'object' || node === null || !('range' in node) || !Array.isArray(node.range)) return undefined;
  const start: unknown = node.range[0];
  return typeof start === 'number' ? start : undefined;
}

function firstLine(text: string): string {
  return (
    text
      .split('\n')[0]
      ?.replace(/ at line \d+.*$/, '')
      .replace(/[.:]$/, '') ?? text
  );
}

function invalid(source: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-013', { source, key: '', reason });
}
