import { readdirSync, readFileSync } from "node:fs";

/** A process as the kernel shows it. */
export interface ProcessRow {
  id: number;
  parentId: number;
  /** When it began, in ticks since the start of the machine: numbers are used again. */
  beganAt: string;
  state: string;
  command: string;
}

/** Every process of the machine, zombies included. */
export function processes(): ProcessRow[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "utf8");
        const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        const [state = "", parentId = ""] = fields;
        const command = readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ").trim();
        return [
          {
            id: Number(name),
            parentId: Number(parentId),
            beganAt: fields[19] ?? "",
            state,
            command,
          },
        ];
      } catch {
        return []; // it has ended meanwhile
      }
    });
}

/** Whether a process runs; a zombie does not. */
export function isAlive(id: number): boolean {
  return processes().some((row) => row.id === id && row.state !== "Z");
}

/** What a process has started, directly or not, zombies included. */
export function descendantsOf(id: number): ProcessRow[] {
  const all = processes();
  const of = (parentId: number): ProcessRow[] =>
    all.filter((row) => row.parentId === parentId).flatMap((row) => [row, ...of(row.id)]);
  return of(id);
}
