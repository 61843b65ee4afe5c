// Reads what the engine answered: errors become EngineErrors, documents are capped and checked against a schema.
import * as z from 'zod';
import { EngineError } from './error.ts';
import type { EngineReadable } from './readable.ts';

const errorReplyCap = 64 * 1024;
const engineMessageCap = 4096;

/** The status of an answer, and the call it answers. */
export interface Verdict {
  readonly operation: string;
  readonly status: number;
  readonly expect: readonly number[] | undefined;
}

/** Whether the status is one the caller takes for success; without a list, any 2xx. */
export function isExpected({ status, expect }: Verdict): boolean {
  return expect ? expect.includes(status) : status >= 200 && status < 300;
}

/** The error for an unexpected answer, with the engine's own message where it can be read. */
export async function refusalOf(verdict: Verdict, body: EngineReadable | undefined): Promise<EngineError> {
  const { operation, status } = verdict;
  const text = body ? await readAll(body, errorReplyCap, operation).catch(ignoreUnreadable) : '';
  const engineMessage = messageOf(text).slice(0, engineMessageCap);
  const detail = engineMessage === '' ? `status ${status}` : `status ${status}: ${engineMessage}`;
  return new EngineError({ kind: 'status', operation, detail, status, engineMessage });
}

/** The status has already said that the call failed; a text that cannot be read must not hide it. A timeout or an abort is still one. */
function ignoreUnreadable(error: unknown): string {
  if (error instanceof EngineError && (error.kind === 'aborted' || error.kind === 'timeout')) throw error;
  return '';
}

const errorReply = z.lazy(() => z.looseObject({ message: z.string() }));

function messageOf(text: string): string {
  try {
    const parsed = errorReply.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data.message : text;
  } catch {
    return text;
  }
}

/** The whole answer as text; more than `cap` bytes are a `protocol` error. */
export async function readAll(body: EngineReadable, cap: number, operation: string): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > cap) {
      throw new EngineError({ kind: 'protocol', operation, detail: `the answer is longer than ${cap} bytes` });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Parses a JSON document of the engine; anything but what the schema allows is a `protocol` error. */
export function parseJson<T>(text: string, schema: z.ZodType<T>, operation: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new EngineError({ kind: 'protocol', operation, detail: 'the answer is not JSON', cause });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const detail = `the answer has another shape than expected: ${z.prettifyError(parsed.error)}`;
  throw new EngineError({ kind: 'protocol', operation, detail, cause: parsed.error });
}
