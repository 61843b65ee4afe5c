// One HTTP exchange with the engine: a socket of its own, from the first byte sent until the last one read.
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request as httpRequest } from 'node:http';
import type { Agent, OutgoingHttpHeaders } from 'node:http';
import { finished, type Duplex, Readable } from 'node:stream';
import { classifyTransportError, EngineError } from './error.ts';
import { HijackedStream } from './hijack.ts';
import { CallLifetime, type LiveCalls } from './lifetime.ts';
import { EngineReadable } from './readable.ts';

/** What goes over the wire; everything about paths and versions has been decided. */
export interface ExchangeRequest {
  readonly socketPath: string;
  readonly agent: Agent;
  readonly operation: string;
  readonly method: string;
  readonly target: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body: Buffer | Readable | undefined;
  readonly upgrade: boolean;
  readonly deadlineMs: number;
  readonly idleMs: number | undefined;
  readonly signal: AbortSignal;
  readonly liveCalls: LiveCalls;
}

/** An answer whose headers have arrived. The lifetime goes on until its body, or its hijacked stream, is over. */
export interface Exchange {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly lifetime: CallLifetime;
  readonly body: EngineReadable | undefined;
  readonly hijacked: HijackedStream | undefined;
}

/** Sends the request and resolves with the headers of the answer. Always settles: by answer, deadline, abort or loss of the connection. */
export function exchange(call: ExchangeRequest): Promise<Exchange> {
  return new Promise((resolve, reject) => {
    const { operation } = call;
    const request = httpRequest({
      socketPath: call.socketPath,
      agent: call.agent,
      method: call.method,
      path: call.target,
      headers: requestHeaders(call),
    });
    const lifetime = new CallLifetime({
      operation,
      signal: call.signal,
      deadlineMs: call.deadlineMs,
      liveCalls: call.liveCalls,
      giveUp: error => {
        reject(error);
        request.destroy(error);
      },
    });
    const fail = (cause: unknown) => {
      lifetime.release();
      reject(classifyTransportError(cause, operation));
    };
    request.on('error', fail);
    let answered = false;
    request.once('close', () => answered || fail(undefined));
    request.once('response', response => {
      answered = true;
      resolve(answer({ call, request, response, lifetime }));
    });
    if (call.upgrade) {
      request.once('upgrade', (response, socket, head) => {
        answered = true;
        resolve(takeOver({ call, response, lifetime, source: socket, target: socket, head }));
      });
    }
    send(call, request, lifetime);
  });
}

function requestHeaders({ body, headers, upgrade }: ExchangeRequest): OutgoingHttpHeaders {
  return {
    ...headers,
    ...(Buffer.isBuffer(body) ? { 'Content-Length': body.length } : {}),
    // Without it a refusal that comes before the upload is read would be lost: the engine closes, and our write fails before its answer is read.
    ...(body instanceof Readable ? { Expect: '100-continue' } : {}),
    ...(upgrade ? { Connection: 'Upgrade', Upgrade: 'tcp' } : {}),
  };
}

function send(call: ExchangeRequest, request: ClientRequest, lifetime: CallLifetime): void {
  const { body } = call;
  if (!(body instanceof Readable)) {
    request.end(body);
    return;
  }
  request.once('close', () => body.destroy());
  finished(body, { writable: false }, error => {
    // A body destroyed because the call was already over is no news.
    if (!error || request.destroyed) return;
    const detail = 'the source of the upload failed';
    lifetime.release();
    lifetime.giveUp(new EngineError({ kind: 'aborted', operation: call.operation, detail, cause: error }));
  });
  request.once('continue', () => body.pipe(request));
  request.flushHeaders();
}

interface Answered {
  readonly call: ExchangeRequest;
  readonly request: ClientRequest;
  readonly response: IncomingMessage;
  readonly lifetime: CallLifetime;
}

function answer({ call, request, response, lifetime }: Answered): Exchange {
  if (call.upgrade && response.statusCode === 200) {
    // Engines that ignore the upgrade answer 200 and then speak raw bytes on the same connection.
    return takeOver({ call, response, lifetime, source: response, target: response.socket, head: Buffer.alloc(0) });
  }
  const body = new EngineReadable({
    source: response,
    operation: call.operation,
    ...(call.idleMs === undefined ? {} : { idleMs: call.idleMs }),
    onClose: () => {
      lifetime.release();
      request.destroy();
    },
  });
  lifetime.giveUp = error => body.destroy(error);
  return { ...statusOf(response), lifetime, body, hijacked: undefined };
}

interface TakenOver {
  readonly call: ExchangeRequest;
  readonly response: IncomingMessage;
  readonly lifetime: CallLifetime;
  readonly source: Readable;
  readonly target: Duplex;
  readonly head: Buffer;
}

function takeOver({ call, response, lifetime, source, target, head }: TakenOver): Exchange {
  const { operation } = call;
  const hijacked = new HijackedStream({ source, target, head, operation, onClose: () => lifetime.release() });
  lifetime.giveUp = error => hijacked.destroy(error);
  return { ...statusOf(response), lifetime, body: undefined, hijacked };
}

function statusOf(response: IncomingMessage): { status: number; headers: IncomingHttpHeaders } {
  return { status: response.statusCode ?? 0, headers: response.headers };
}
