// Bundles the page into ../static, with a hash of its sources, by which a test tells whether the bundle is theirs.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const out = "../static";

// Chessground sets one style attribute, which the page's Content-Security-Policy forbids; style.css has it instead.
const withoutStyleAttribute = {
  name: "without-style-attribute",
  setup({ onLoad }) {
    onLoad({ filter: /chessground\/dist\/wrap\.js$/ }, ({ path }) => {
      const [before, after, ...more] = readFileSync(path, "utf8").split("style: 'color-scheme:light only',");
      if (after === undefined || more.length) throw new Error(`${path}: not the version that is known here`);
      return { contents: before + after };
    });
  },
};

await build({
  entryPoints: { app: "src/main.ts", style: "src/style.css" },
  outdir: out,
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  legalComments: "eof",
  plugins: [withoutStyleAttribute],
});
copyFileSync("src/index.html", `${out}/index.html`);

const hash = createHash("sha256");
for (const name of ["package-lock.json", ...readdirSync("src").sort().map((file) => `src/${file}`)]) {
  hash.update(`${name}\n`).update(readFileSync(name));
}
writeFileSync(`${out}/sources.sha256`, hash.digest("hex") + "\n");
