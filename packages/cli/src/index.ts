// The public surface of @acode/sandbox and nothing else.
export {};
