export { dashboard, type Panel } from "./dashboard.ts";
