import { existsSync, readFileSync } from "node:fs";

const assignment = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$/;

function unquoted(value) {
  const quoted = /^(["'])(.*)\1$/.exec(value);
  return quoted === null ? value.replace(/\s+#.*$/, "") : quoted[2];
}

/** The `NAME=value` lines of a file; comments and other lines are skipped, an absent file is empty. */
export function readEnvFile(path) {
  if (!existsSync(path)) return {};
  const values = {};
  for (const line of readFileSync(path, "utf8").split(/\r?\n/)) {
    const [, name, value] = assignment.exec(line) ?? [];
    if (name !== undefined) values[name] = unquoted(value);
  }
  return values;
}
