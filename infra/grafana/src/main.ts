// `npm run dashboard`: writes dashboards/larkline.json, which Grafana reads.
import { writeFile } from "node:fs/promises";
import { dashboard } from "./dashboard.ts";

const file = new URL("../dashboards/larkline.json", import.meta.url);
await writeFile(file, `${JSON.stringify(dashboard(), undefined, 2)}\n`);
